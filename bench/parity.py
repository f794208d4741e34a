"""Are our attacks as strong as independent implementations of the same papers, at the same settings?

APGD (ce, dlr, targeted dlr; Linf, L2, L1) against adv-lib and torchattacks; Square (Linf, L2) against torchattacks.
Every tool gets the same images, budget and batch size; one judge passes all verdicts. A second instrument looks at the
images that neither tool breaks: a wrapper around the network notes the highest margin (largest wrong logit minus right
logit) of any point inside the ball that a tool has asked for.

    python bench/parity.py --zoo DIR [--only resnet2b_cifar] [--images 350] [--seeds 3] [--csv FILE]
"""

import argparse
import csv
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from robustkit.attacks import APGD, Square
from scipy.stats import binomtest
from subjects import Subject, digits, zoo
from torch import Tensor, nn

from robustkit import attack
from robustkit.primitives.protocol import Attack

BATCH = 64
STEPS = 100  # torchattacks' own default is 10, so it is always passed
QUERIES = 1000
TARGETS = 3  # the likeliest wrong classes; all three tools rank them by the clean logits
ORDER = {"Linf": torch.inf, "L2": 2.0, "L1": 1.0}
# Radii that break about half of the images: there a difference in strength shows best.
RADII = {
    "resnet2b_cifar": ("cifar10", {"Linf": 4 / 255, "L2": 0.35, "L1": 2.5}),
    "cnn_a_cifar": ("cifar10", {"Linf": 4 / 255, "L2": 0.5, "L1": 4.0}),
    "trades_mnist": ("mnist", {"Linf": 0.34, "L2": 2.5, "L1": 7.0}),
}


class Watched(nn.Module):
    """A network that notes, per image, the highest margin among the points of the ball that it was asked for."""

    def __init__(self, subject: Subject, norm: str, eps: float) -> None:
        super().__init__()
        self.network, self.log = subject.model, Log(subject.x, subject.y, ORDER[norm], eps)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        self.log.note(x.detach(), logits.detach())
        return logits


class Log:
    def __init__(self, x: Tensor, y: Tensor, order: float, eps: float) -> None:
        self.x, self.y, self.order, self.eps = x.flatten(1), y, order, eps
        self.best = torch.full((len(x),), -torch.inf)

    def __deepcopy__(self, memo: object) -> "Log":
        return self  # copies of the network write into the same log

    def note(self, points: Tensor, logits: Tensor) -> None:
        points = points.flatten(1)
        # A point belongs to the image nearest to it; in a large Linf ball that is the nearest in Linf.
        p = self.order if self.eps > 0.1 and self.order == torch.inf else 2.0
        owner = torch.cdist(points, self.x, p=p).argmin(1)
        inside = (points - self.x[owner]).norm(p=self.order, dim=1) <= self.eps * (1 + 1e-5) + 1e-6
        y = self.y[owner].unsqueeze(1)
        margin = logits.scatter(1, y, -torch.inf).amax(1) - logits.gather(1, y).squeeze(1)
        self.best.scatter_reduce_(0, owner[inside], margin[inside], "amax")


Peer = Callable[[nn.Module, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Comparison:
    name: str
    norm: str
    ours: Attack
    peers: dict[str, Peer]


def comparisons(radii: dict[str, float]) -> Iterator[Comparison]:
    for norm, eps in radii.items():
        for loss in ("ce", "dlr"):
            peers = {"adv-lib": advlib(norm, eps, loss)}
            if norm != "L1":
                peers["torchattacks"] = torchattacks_("APGD", norm, eps, steps=STEPS, loss=loss)
            yield Comparison(f"APGD-{loss}", norm, APGD(eps, norm, steps=STEPS, loss=loss), peers)
        peers = {"adv-lib": advlib(norm, eps, "targeted")}
        if norm != "L1":
            peers["torchattacks"] = torchattacks_("APGDT", norm, eps, steps=STEPS, n_classes=TARGETS + 1)
        yield Comparison("APGD-T", norm, APGD(eps, norm, steps=STEPS, loss="dlr", targets=TARGETS), peers)
        if norm != "L1":  # neither peer has Square in L1
            peers = {"torchattacks": torchattacks_("Square", norm, eps, n_queries=QUERIES)}
            yield Comparison("Square", norm, Square(eps, norm, queries=QUERIES), peers)


def advlib(norm: str, eps: float, loss: str) -> Peer:
    # adv-lib imports a plotting server that nothing here uses.
    sys.modules.setdefault("visdom", types.ModuleType("visdom")).__dict__.setdefault("Visdom", object)
    from adv_lib.attacks.auto_pgd import apgd, apgd_targeted

    def run(model: nn.Module, x: Tensor, y: Tensor, seed: int) -> Tensor:
        torch.manual_seed(seed)
        setting = {"eps": eps, "norm": ORDER[norm], "n_iter": STEPS, "use_large_reps": norm == "L1"}
        if loss == "targeted":
            return apgd_targeted(model, x, y, num_targets=TARGETS, **setting)  # type: ignore[no-any-return]
        return apgd(model, x, y, loss_function=loss, **setting)  # type: ignore[no-any-return]

    return run


def torchattacks_(name: str, norm: str, eps: float, **setting: object) -> Peer:
    import torchattacks

    def run(model: nn.Module, x: Tensor, y: Tensor, seed: int) -> Tensor:
        return getattr(torchattacks, name)(model, norm=norm, eps=eps, seed=seed, **setting)(x, y)  # type: ignore[no-any-return]

    return run


class Reached(NamedTuple):
    """What one tool has reached with one seed."""

    robust: Tensor  # [N] bool by the one judge
    margin: Tensor  # [N] highest inside the ball
    seconds: float


def reached(subject: Subject, comparison: Comparison, eps: float, run: Callable[[nn.Module], Tensor]) -> Reached:
    watched = Watched(subject, comparison.norm, eps).eval()
    since = time.perf_counter()
    points = run(watched)
    seconds = time.perf_counter() - since
    inside = (points - subject.x).flatten(1).norm(p=ORDER[comparison.norm], dim=1) <= eps * (1 + 1e-5) + 1e-6
    with torch.no_grad():
        labels = torch.cat([subject.model(part).argmax(1) for part in points.split(100)])
    return Reached((labels == subject.y) | ~inside, watched.log.best, seconds)


def ours(subject: Subject, comparison: Comparison, eps: float, seed: int) -> Reached:
    def run(model: nn.Module) -> Tensor:
        return attack(model, subject.x, subject.y, comparison.ours, batch_size=BATCH, seed=seed).x_adv

    return reached(subject, comparison, eps, run)


def theirs(subject: Subject, comparison: Comparison, eps: float, seed: int, peer: Peer) -> Reached:
    def run(model: nn.Module) -> Tensor:
        parts = zip(subject.x.split(BATCH), subject.y.split(BATCH), strict=True)
        return torch.cat([peer(model, x, y, seed * 1000 + number) for number, (x, y) in enumerate(parts)]).detach()

    return reached(subject, comparison, eps, run)


class Row(NamedTuple):
    network: str
    norm: str
    attack: str
    peer: str
    n: int
    ours_robust: str  # per cent of the n images, one number for each seed
    peer_robust: str
    agreement: float  # share of (image, seed) with one verdict
    ours_only: int  # (image, seed) that only we break
    peer_only: int
    p_value: float  # exact McNemar over (image, seed)
    margin: float  # mean over images that neither breaks of our highest margin minus theirs; logits
    margin_error: float  # its standard error, images as units
    ours_s: float
    peer_s: float
    verdict: str


def compared(subject: Subject, comparison: Comparison, peer: str, mine: list[Reached], other: list[Reached]) -> Row:
    pairs = list(zip(mine, other, strict=True))
    ours_only = sum(int((~one.robust & two.robust).sum()) for one, two in pairs)
    peer_only = sum(int((one.robust & ~two.robust).sum()) for one, two in pairs)
    total = len(subject.x) * len(pairs)
    p_value = mcnemar(ours_only, peer_only)
    both = torch.stack([one.robust & two.robust for one, two in pairs]).all(0)
    gain = torch.stack([one.margin - two.margin for one, two in pairs]).mean(0)[both]
    verdict = "same"
    if p_value < 0.01:
        verdict = "stronger" if ours_only > peer_only else "WEAKER"
    return Row(
        subject.name, comparison.norm, comparison.name, peer, len(subject.x), shares(mine), shares(other),
        1 - (ours_only + peer_only) / total, ours_only, peer_only, p_value, float(gain.mean()),
        float(gain.std() / len(gain) ** 0.5), sum(one.seconds for one in mine),
        sum(one.seconds for one in other), verdict,
    )  # fmt: skip


def shares(results: list[Reached]) -> str:
    return " ".join(f"{100 * result.robust.double().mean():.1f}" for result in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py; without it, a resnet18 on digits")
    parser.add_argument("--only", help="one network of the zoo")
    parser.add_argument("--attacks", default="", help="substring of the attacks to run, such as Square or APGD-T")
    parser.add_argument("--norms", default="Linf,L2,L1")
    parser.add_argument("--images", type=int, default=256, help="correctly classified images per network")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for subject, radii in subjects(options):
        radii = {norm: eps for norm, eps in radii.items() if norm in options.norms.split(",")}  # noqa: PLW2901
        for comparison in comparisons(radii):
            if options.attacks not in comparison.name:
                continue
            eps = radii[comparison.norm]
            mine = [ours(subject, comparison, eps, seed) for seed in range(options.seeds)]
            for name, peer in comparison.peers.items():
                other = [theirs(subject, comparison, eps, seed, peer) for seed in range(options.seeds)]
                show(compared(subject, comparison, name, mine, other), options.csv)


def subjects(options: argparse.Namespace) -> Iterator[tuple[Subject, dict[str, float]]]:
    if options.zoo is None:
        yield digits("resnet18", options.images), {"Linf": 0.05, "L2": 0.3, "L1": 1.0}
        return
    for network, (images, radii) in RADII.items():
        if options.only in (None, network):
            yield zoo(options.zoo, network, images, options.images), radii


def show(row: Row, file: Path | None) -> None:
    print(
        f"{row.network:15} {row.norm:4} {row.attack:8} vs {row.peer:12} n={row.n} robust % [{row.ours_robust}] vs "
        f"[{row.peer_robust}] agree {100 * row.agreement:.2f} % only ours/theirs {row.ours_only}/{row.peer_only} "
        f"p={row.p_value:.3g} margin {row.margin:+.4f} +- {row.margin_error:.4f} {row.ours_s:.0f}/{row.peer_s:.0f} s "
        f"{row.verdict}",
        flush=True,
    )
    append(row, file)


def append(row: NamedTuple, file: Path | None) -> None:
    """Add a row to a CSV file, with a header if it is new."""
    if file is None:
        return
    new = not file.exists()
    with file.open("a", newline="") as stream:
        csv.writer(stream).writerows([row._fields, row] if new else [row])


def mcnemar(one: int, other: int) -> float:
    """The exact p-value of so many pairs in which only one of two differs, and only the other."""
    return float(binomtest(one, one + other).pvalue) if one + other else 1.0


if __name__ == "__main__":
    main()
