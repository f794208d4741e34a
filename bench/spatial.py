"""Does our grid of rotations and shifts break as much as foolbox's and ART's grids of as many points?

Foolbox tries every point on the whole batch until all its images are broken; ART chooses one point for all images, so
it runs image by image. Their own points are judged by a fresh forward, as ours are. Random search and gradients at the
same radius follow, and what they cost.

    python bench/spatial.py --zoo DIR [--networks cnn_a_cifar,trades_mnist] [--images 64]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from robustkit.attacks import PGD, Grid, Noise, StAdv
from robustkit.attacks.spatial._total_variation import roughness
from subjects import Subject, zoo
from torch import Tensor, nn

from robustkit import attack
from robustkit.primitives.protocol import Attack

DEGREES, PIXELS = 10.0, 1.0  # at 30 and 3, of Engstrom et al. 2019, nearly everything is broken
IMAGES = {"cnn_a_cifar": "cifar10", "resnet2b_cifar": "cifar10", "smallcnn_mnist": "mnist", "trades_mnist": "mnist"}


class Counted(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.count = model, 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += len(x)
        logits: Tensor = self.model(x.float())
        return logits


def foolbox(subject: Subject, model: nn.Module, angles: int, shifts: int) -> Tensor:
    import foolbox as fb

    made = fb.attacks.SpatialAttack(
        max_translation=PIXELS, max_rotation=DEGREES, num_translations=shifts, num_rotations=angles
    )
    return made(fb.PyTorchModel(model.eval(), bounds=(0, 1)), subject.x, fb.criteria.Misclassification(subject.y))[0]


def art(subject: Subject, model: nn.Module, angles: int, shifts: int) -> Tensor:
    from art.attacks.evasion import SpatialTransformation
    from art.estimators.classification import PyTorchClassifier

    shape = tuple(subject.x.shape[1:])
    known = PyTorchClassifier(model.eval(), nn.CrossEntropyLoss(), shape, 10, clip_values=(0.0, 1.0))
    points = []
    for image in subject.x:
        # Its shifts are percentages of the side, rounded to whole pixels.
        made = SpatialTransformation(
            known, max_translation=100 * PIXELS / shape[1], num_translations=shifts, max_rotation=DEGREES,
            num_rotations=angles, verbose=False,
        )  # fmt: skip
        points.append(made.generate(image.unsqueeze(0).numpy()))
    return torch.from_numpy(np.concatenate(points))


def ours(subject: Subject, method: Attack) -> None:
    begin = time.process_time()
    result = attack(subject.model, subject.x, subject.y, method)
    passes = (result.forwards + result.backwards).double().mean().item()
    spent = time.process_time() - begin
    rough = ""
    if method.norm == "flow":
        rough = f", roughness {roughness(result.parameters)[result.success].mean():.0f}"
    name, threat = f"{type(method).__name__}{rough}", f"{method.norm} {method.eps}"
    line(subject, name, threat, int(result.success.sum()), passes, spent)


def theirs(subject: Subject, name: str, run: object, *grid: int) -> None:
    model, begin = Counted(subject.model), time.process_time()
    points = run(subject, model, *grid)  # type: ignore[operator]
    spent = time.process_time() - begin
    broken = (subject.model(points.float()).argmax(1) != subject.y).sum().item()
    line(subject, name, f"spatial {DEGREES}", broken, model.count / len(subject.x), spent)


def line(subject: Subject, name: str, threat: str, broken: int, passes: float, seconds: float) -> None:
    cells = (subject.name, threat, name, f"{broken} of {len(subject.x)}", f"{passes:.1f}", f"{seconds:.1f}")
    print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--networks", default="cnn_a_cifar,trades_mnist")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--parts", default="grid,flow,color")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for network in given.networks.split(","):
        subject = zoo(given.zoo, network, IMAGES[network], given.images)
        if "grid" in given.parts:
            for angles, shifts in ((5, 3), (31, 5)):
                ours(subject, Grid(DEGREES, "spatial", angles=angles, shifts=shifts))
                theirs(subject, "foolbox", foolbox, angles, shifts)
            theirs(subject, "ART", art, 5, 3)
            for queries in (10, 100):
                ours(subject, Noise(DEGREES, "spatial", queries=queries))
            ours(subject, PGD(DEGREES, "spatial", steps=40))
            ours(subject, PGD(DEGREES, "spatial", steps=20, restarts=5))
        for eps in (0.3, 0.6) if "flow" in given.parts else ():
            ours(subject, PGD(eps, "flow", steps=40))
            ours(subject, StAdv(eps, "flow", steps=100))
            ours(subject, Noise(eps, "flow", queries=100))
        if subject.x.shape[1] == 3 and "color" in given.parts:
            ours(subject, PGD(0.3, "color", steps=40))
            ours(subject, Noise(0.3, "color", queries=100))
