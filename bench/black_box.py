"""Do our black-box attacks get as near, or break as much, as independent implementations after as many queries?

Foolbox (HopSkipJump, Boundary Attack), ART (HopSkipJump, SimBA, GeoDA, Sign-OPT, one pixel), torchattacks (SPSA, one
pixel) and the authors of Sparse-RS run image by image, so that none pays for the others of its batch. A wrapper around
the network counts every row that a tool sends, notes the nearest error among the rows, and stops the tool when the
budget is spent.

    python bench/black_box.py --zoo DIR --sparse-rs DIR [--only cnn_a_cifar] [--images 32] [--parts labels,logits]
        [--rows GeoDA,SignOPT] [--seed 0]
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from robustkit.attacks import (
    NES,
    SPSA,
    Bandits,
    Boundary,
    GeoDA,
    HopSkipJump,
    OnePixel,
    RayS,
    SignHunter,
    SignOPT,
    SimBA,
    SparseRS,
    Square,
    SurFree,
)
from subjects import Subject, zoo
from torch import Tensor, nn

from robustkit import attack
from robustkit.classifier.answers import answered
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Trials

BUDGETS = (500, 2000)
ORDER = {"Linf": torch.inf, "L2": 2.0, "L1": 1.0, "L0": 0.0}
# Radii at which about half of the images stand.
RADII = {
    "cnn_a_cifar": ("cifar10", {"Linf": 5 / 255, "L2": 0.8, "L0": 12}),
    "resnet2b_cifar": ("cifar10", {"Linf": 5 / 255, "L2": 0.8, "L0": 12}),
    "smallcnn_mnist": ("mnist", {"Linf": 0.15, "L2": 2.0, "L0": 8}),
    "trades_mnist": ("mnist", {"Linf": 0.34, "L2": 2.0, "L0": 5}),
}


class SpentError(Exception):
    """The budget is spent."""


class Watched(nn.Module):
    """A network that notes the nearest error among all rows that it is sent."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, norm: str) -> None:
        super().__init__()
        self.model, self.x, self.y, self.order = model, x, y, ORDER[norm]
        self.count, self.nearest, self.at = 0, torch.inf, dict.fromkeys(BUDGETS, torch.inf)

    def forward(self, points: Tensor) -> Tensor:
        with torch.no_grad():
            points = points.float()  # ART sends some points in double precision
            logits: Tensor = self.model(points)
        away = points - self.x
        away = away.abs().amax(1, keepdim=True) if self.order == 0 else away  # L0 counts pixels here
        for distance, label in zip(
            away.flatten(1).norm(p=self.order, dim=1).tolist(), logits.argmax(1).tolist(), strict=True
        ):
            self.count += 1
            inside = label != int(self.y)
            self.nearest = min(self.nearest, distance) if inside else self.nearest
            self.at |= {budget: self.nearest for budget in BUDGETS if self.count <= budget}
        if self.count >= max(self.at):
            raise SpentError
        return logits


Peer = Callable[[nn.Module, Tensor, Tensor], object]


def foolbox(name: str, **values: object) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        import foolbox as fb

        start = fb.attacks.LinearSearchBlendedUniformNoiseAttack(steps=50)
        made = getattr(fb.attacks, name)(init_attack=start, **values)
        made.run(fb.PyTorchModel(model.eval(), bounds=(0, 1)), x, fb.criteria.Misclassification(y))

    return run


def art(name: str, probabilities: bool = False, **values: object) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        np.mat = np.asmatrix  # its GeoDA needs the name that NumPy 2 dropped
        model = nn.Sequential(model, nn.Softmax(1)) if probabilities else model
        shape = tuple(x.shape[1:])
        known = PyTorchClassifier(model.eval(), nn.CrossEntropyLoss(), shape, 10, clip_values=(0.0, 1.0))
        made = getattr(evasion, name)(known, verbose=False, **values)
        made.generate(x.numpy(), None if name != "SimBA" else np.eye(10)[y.numpy()])

    return run


def torchattacks_one_pixel(pixels: int, queries: int) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        import torchattacks

        # Its population is `popsize` for each of the bounds: two places and the channels of each pixel.
        members = 100 // (pixels * (2 + x.shape[1])) + 1
        torchattacks.OnePixel(model, pixels=pixels, steps=queries, popsize=members)(x, y)

    return run


def torchattacks_spsa(eps: float, iterations: int) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        import torchattacks

        made = torchattacks.SPSA(model, eps=eps, nb_iter=iterations, nb_sample=25, delta=0.01, lr=0.2 * eps)
        model(made(x, y))

    return run


def sparse_rs_authors(folder: Path, pixels: int, queries: int) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        sys.path.insert(0, str(folder))
        from rs_attacks import RSAttack

        made = RSAttack(model, norm="L0", eps=pixels, n_queries=queries, p_init=0.3, verbose=False)
        made.perturb(x, y)

    return run


def theirs(subject: Subject, norm: str, peer: Peer, seed: int) -> dict[int, Tensor]:
    """The nearest error of each image after each budget."""
    found = []
    for row in range(len(subject.x)):
        torch.manual_seed(row + 1000 * seed)
        np.random.seed(row + 1000 * seed)
        x, y = subject.x[row : row + 1], subject.y[row : row + 1]
        model = Watched(subject.model, x, y, norm)
        # What a tool raises when it finds no start counts as no error; it is not our business here.
        with contextlib.suppress(SpentError, ValueError, AssertionError):
            peer(model, x, y)
        found.append(model.at)
    return {budget: torch.tensor([each[budget] for each in found]) for budget in BUDGETS}


def ours(subject: Subject, method: Attack, seed: int) -> dict[int, Tensor]:
    """The same for an attack that looks for the nearest error."""
    x, y = subject.x, subject.y
    none = torch.full_like(y, -1)
    key = torch.arange(len(x)) * 1_000_003 + 7919 * seed
    state = method.init(Trials(x, y, none, none, key, torch.zeros_like(y)))
    found = {}
    while not state.done.all():
        state = method.step(state, answered(method, state, subject.model))
        assert isinstance(state, NearestState)
        queries = int(state.queries[0])
        found |= {budget: state.distance.float() for budget in BUDGETS if queries <= budget}
    return found


class Table(NamedTuple):
    """Prints the rows that are asked for, as they come."""

    subject: Subject
    rows: tuple[str, ...]  # beginnings of names; an empty one begins every name
    seed: int

    def distances(self, name: str, norm: str, run: Callable[[], dict[int, Tensor]]) -> None:
        if not name.startswith(self.rows):
            return
        start = time.process_time()
        found = run()
        medians = [f"{found[budget].median():.4f}" for budget in BUDGETS]
        self._line(norm, name, *medians, int(found[BUDGETS[-1]].isinf().sum()), f"{time.process_time() - start:.0f}")

    def successes(self, name: str, norm: str, run: Callable[[int], int]) -> None:
        if not name.startswith(self.rows):
            return
        start = time.process_time()
        broken = [f"{run(budget)} / {len(self.subject.x)}" for budget in BUDGETS]
        self._line(norm, name, *broken, f"{time.process_time() - start:.0f}")

    def _line(self, *cells: object) -> None:
        print("|", " | ".join(map(str, (self.subject.name, *cells))), "|", flush=True)


def labels(table: Table) -> None:
    subject = table.subject
    most = max(BUDGETS)
    for kind, norm, values in (
        (HopSkipJump, "L2", {}),
        (HopSkipJump, "L2", {"frequencies": 0.25}),
        (SurFree, "L2", {}),
        (Boundary, "L2", {}),
        (HopSkipJump, "Linf", {}),
        (HopSkipJump, "Linf", {"frequencies": 0.25}),
        (RayS, "Linf", {}),
        (GeoDA, "L2", {}),
        (GeoDA, "Linf", {}),
        (GeoDA, "L1", {}),
        (SignOPT, "L2", {}),
    ):
        name = "QEBA" if values else kind.__name__
        # One more than the budget: the last forward of ours judges the point.
        method = kind(0.5, norm, queries=most + 1, **values)
        table.distances(f"{name}, ours", norm, partial(ours, subject, method, table.seed))
    for name, norm, peer in (
        ("HopSkipJump, foolbox", "L2", foolbox("HopSkipJumpAttack", constraint="l2")),
        ("HopSkipJump, ART", "L2", art("HopSkipJump", norm=2, max_iter=64)),
        ("Boundary, foolbox", "L2", foolbox("BoundaryAttack")),
        ("GeoDA, ART", "L2", art("GeoDA", norm=2, max_iter=most)),
        ("GeoDA, ART", "Linf", art("GeoDA", norm=np.inf, max_iter=most)),
        ("GeoDA, ART", "L1", art("GeoDA", norm=1, max_iter=most)),
        ("SignOPT, ART", "L2", art("SignOPTAttack", targeted=False, query_limit=most)),
        ("HopSkipJump, foolbox", "Linf", foolbox("HopSkipJumpAttack", constraint="linf")),
        ("HopSkipJump, ART", "Linf", art("HopSkipJump", norm=np.inf, max_iter=64)),
    ):
        table.distances(name, norm, partial(theirs, subject, norm, peer, table.seed))


def logits(table: Table, radii: dict[str, float], sparse_rs: Path | None) -> None:
    subject = table.subject

    def mine(kind: type[Attack], norm: str, **values: object) -> Callable[[int], int]:
        def run(budget: int) -> int:
            made = kind(radii[norm], norm, queries=budget, **values)
            return int(attack(subject.model, subject.x, subject.y, made, seed=table.seed).success.sum())

        return run

    def other(norm: str, make: Callable[[int], Peer], radius: float) -> Callable[[int], int]:
        return lambda budget: int((theirs(subject, norm, make(budget), table.seed)[budget] <= radius + 1e-5).sum())

    for kind in (Square, SignHunter, NES, SPSA, Bandits):
        table.successes(f"{kind.__name__}, ours", "Linf", mine(kind, "Linf"))
    # Its estimate takes two queries for each of 25 samples; only its last point lies in the ball.
    eps = radii["Linf"]
    spsa = other("Linf", lambda budget: torchattacks_spsa(eps, budget // 50 - 1), eps)
    table.successes("SPSA, torchattacks", "Linf", spsa)
    for kind in (Square, SimBA, NES, Bandits):
        table.successes(f"{kind.__name__}, ours", "L2", mine(kind, "L2"))
    side = subject.x.shape[-1] // 4
    step = 0.2 * radii["L2"]
    simba = partial(art, "SimBA", True, epsilon=step, freq_dim=side)
    table.successes("SimBA, ART", "L2", other("L2", lambda budget: simba(max_iter=budget), radii["L2"]))
    channels = subject.x.shape[1]
    pixels = int(radii["L0"])
    radii = radii | {"L0": channels * pixels}
    table.successes("Sparse-RS, ours", "L0", mine(SparseRS, "L0", whole_pixels=True))
    if sparse_rs:
        table.successes("Sparse-RS, authors", "L0",
                        other("L0", lambda budget: sparse_rs_authors(sparse_rs, pixels, budget), pixels))  # fmt: skip
    table.successes("OnePixel, ours", "L0", mine(OnePixel, "L0"))
    evolution = partial(art, "PixelAttack", True, th=pixels, es=1)
    table.successes("OnePixel, ART", "L0", other("L0", lambda budget: evolution(max_iter=budget), pixels))
    table.successes("OnePixel, torchattacks", "L0",
                    other("L0", lambda budget: torchattacks_one_pixel(pixels, budget), pixels))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--sparse-rs", type=Path, help="checkout of https://github.com/fra31/sparse-rs")
    parser.add_argument("--only", default=",".join(RADII))
    parser.add_argument("--parts", default="labels,logits")
    parser.add_argument("--rows", default="", help="beginnings of the names of the rows to print")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for network in options.only.split(","):
        images, radii = RADII[network]
        table = Table(zoo(options.zoo, network, images, options.images), tuple(options.rows.split(",")), options.seed)
        if "labels" in options.parts:
            labels(table)
        if "logits" in options.parts:
            logits(table, radii, options.sparse_rs)


if __name__ == "__main__":
    main()
