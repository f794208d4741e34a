"""How many unseen images does one perturbation break, ours and ART's, fitted on the same images with the same passes?

The first half of a network's images is fitted to, the other half is judged, by one judge: a fresh forward. A wrapper
counts every row that a tool sends through the network. ART's UniversalPerturbation has no budget of its own: it takes
`--rounds` passes over the images and its count is reported; ours gets the steps that cost as many passes. ART's patch
gets the same steps on the same mini-batches, one place per image and step, and is judged at our places.

    python bench/universal.py --zoo DIR [--only universal|patch] [--networks NAME,...] [--norms Linf] [--images 400]
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from nearest import Passes
from robustkit.attacks import AdversarialPatch, Universal
from subjects import Subject, zoo
from torch import Tensor

from robustkit import Classifier, fit_universal
from robustkit.primitives import noise

NETWORKS = {"smallcnn_mnist": "mnist", "trades_mnist": "mnist", "resnet2b_cifar": "cifar10"}
RADII = {"smallcnn_mnist": {"Linf": 0.3, "L2": 5.0}, "trades_mnist": {"Linf": 0.4, "L2": 5.0},
         "resnet2b_cifar": {"Linf": 16 / 255, "L2": 2.0}}  # fmt: skip
BATCH, TARGET = 20, 3


def broken(subject: Subject, x: Tensor, target: int | None = None) -> float:
    half = len(subject.y) // 2
    with torch.no_grad():
        labels = torch.cat([subject.model(part).argmax(1) for part in x.split(100)])
    y = subject.y[half:]
    if target is None:
        return float((labels != y).double().mean())
    return float((labels == target)[y != target].double().mean())


def art_classifier(network: torch.nn.Module, x: Tensor, classes: int = 10):
    from art.estimators.classification import PyTorchClassifier

    return PyTorchClassifier(network, torch.nn.CrossEntropyLoss(), tuple(x.shape[1:]), classes, clip_values=(0.0, 1.0))


def universal(subject: Subject, norm: str, seeds: range, rounds: int) -> None:
    from art.attacks.evasion import UniversalPerturbation

    half = len(subject.y) // 2
    x, y, rest = subject.x[:half], subject.y[:half], subject.x[half:]
    eps = RADII[subject.name][norm]
    for seed in seeds:
        random.seed(seed)
        np.random.seed(seed)
        counted = Passes(subject.model)
        attack = UniversalPerturbation(
            art_classifier(counted, x), "deepfool", {"verbose": False, "max_iter": 20}, delta=0.0, max_iter=rounds,
            eps=eps, norm=np.inf if norm == "Linf" else 2, verbose=False,
        )  # fmt: skip

        begun = time.process_time()
        attack.generate(x.numpy(), y.numpy())
        delta, seconds = torch.from_numpy(attack.noise)[0], time.process_time() - begun
        report(subject, "universal", norm, "ART", seed, counted, seconds, broken(subject, (rest + delta).clamp(0, 1)))
        steps = max(1, (counted.forwards + counted.backwards) // (2 * BATCH))
        ours = Passes(subject.model)
        attack = Universal(eps, norm, steps=steps, batch=BATCH)
        begun = time.process_time()
        fitted = fit_universal(Classifier(ours, fold=False, channels_last=False), x, y, attack, seed=seed)
        seconds = time.process_time() - begun
        report(subject, "universal", norm, "ours", seed, ours, seconds, broken(subject, fitted.apply(rest)))


def patch(subject: Subject, seeds: range, steps: int, size: float) -> None:
    from art.attacks.evasion import AdversarialPatchPyTorch

    half = len(subject.y) // 2
    x, y, rest = subject.x[:half], subject.y[:half], subject.x[half:]
    for seed in seeds:
        np.random.seed(seed)
        torch.manual_seed(seed)
        side = round(size * x.shape[-1])
        for name, more in (("Adam, rate 0.05", {"learning_rate": 0.05}),
                           ("signs, rate 0.05", {"learning_rate": 0.05, "optimizer": "pgd"})):  # fmt: skip
            counted = Passes(subject.model)
            attack = AdversarialPatchPyTorch(
                art_classifier(counted, x), scale_min=0.5 * side / x.shape[-1], scale_max=side / x.shape[-1],
                max_iter=steps * BATCH // len(x), batch_size=BATCH, patch_shape=tuple(x.shape[1:]), targeted=True,
                verbose=False, **more,
            )  # fmt: skip

            begun = time.process_time()
            with torch.enable_grad():
                values, _ = attack.generate(x.numpy(), torch.full_like(y, TARGET).numpy())
            found, seconds = torch.from_numpy(values).float(), time.process_time() - begun
            report(
                subject, "patch", "target", f"ART {name}", seed, counted, seconds, at_places(subject, found, rest, size)
            )
        ours = Passes(subject.model)
        attack = AdversarialPatch(steps=steps, batch=BATCH, draws=1, size=size)
        begun = time.process_time()
        fitted = fit_universal(
            Classifier(ours, fold=False, channels_last=False), x, y, attack, target=TARGET, seed=seed
        )
        seconds = time.process_time() - begun
        report(
            subject, "patch", "target", "ours", seed, ours, seconds, at_places(subject, fitted.perturbation, rest, size)
        )


def at_places(subject: Subject, found: Tensor, rest: Tensor, size: float, places: int = 8) -> float:
    """Of all images and places; both patches are put down in our way, each in its own resolution."""
    attack = AdversarialPatch(size=size)
    shares = []
    for place in range(places):
        keys = noise.keys(1, torch.arange(len(rest)), torch.full((len(rest),), place))
        shares.append(
            broken(subject, attack.apply(found.clamp(0, 1).expand(len(rest), *found.shape), rest, keys), TARGET)
        )
    return float(np.mean(shares))


def report(
    subject: Subject, what: str, norm: str, tool: str, seed: int, counted: Passes, seconds: float, share: float
) -> None:
    passes = f"{counted.forwards:,}+{counted.backwards:,}"
    print(f"{subject.name}  {what} {norm}  {tool}  seed {seed}  {100 * share:.1f} %  {passes} passes  {seconds:.0f} s",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--only", choices=["universal", "patch"])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--norms", default="Linf,L2")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=float, default=0.6, help="side of the largest patch, as a share of the image's")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.networks.split(","):
        subject = zoo(given.zoo, name, NETWORKS[name], given.images)
        if given.only != "patch":
            for norm in given.norms.split(","):
                universal(subject, norm, range(given.seeds), given.rounds)
        if given.only != "universal":
            patch(subject, range(given.seeds), given.steps, given.size)


if __name__ == "__main__":
    main()
