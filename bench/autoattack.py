"""AutoAttack and its authors' code, image by image, at equal budgets.

The same correctly classified images, radii and budgets, and one judge. Images x seeds are paired. `--autoattack DIR`
is a checkout of https://github.com/fra31/auto-attack; `--shrink 10` divides the steps and queries of both by ten. The
passes of theirs include its checks, seven per image.

    python bench/autoattack.py --zoo DIR --autoattack DIR [--only trades_mnist] [--norms L2] [--images 64] [--seeds 1]
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from authors import parsed, parser
from parity import ORDER, RADII, append, mcnemar
from robustkit.attacks import FAB, Square
from subjects import Subject, zoo
from torch import Tensor, nn

from robustkit import attack
from robustkit.primitives import ensembles, registry
from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Attack

VERSIONS = {"autoattack": "standard", "autoattack-plus": "plus"}


class Result(NamedTuple):
    robust: Tensor  # [N] bool
    passes: float  # forwards and backwards per image
    seconds: float
    broke: str  # images that each member broke, "-" where that is not known


class Row(NamedTuple):
    network: str
    norm: str
    eps: str
    ensemble: str
    shrink: int
    n: int
    ours_robust: str  # per cent, one number for each seed
    theirs_robust: str
    ours_only: int  # (image, seed) that only we break
    theirs_only: int
    broke: str  # by each member of ours, with the first seed
    p_value: float  # exact McNemar
    ours_passes: float  # per image
    theirs_passes: float
    ours_s: float
    theirs_s: float


class Counted(nn.Module):
    """A network that counts the rows of its forward and backward passes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.passes = network, 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += len(x)
        if x.requires_grad:
            # The hook must not change the caller's tensor.
            x = x.view_as(x)
            x.register_hook(self._note)
        logits: Tensor = self.network(x)
        return logits

    def _note(self, grad: Tensor) -> None:
        self.passes += len(grad)


def ours(subject: Subject, norm: str, eps: float, name: str, shrink: int, seed: int) -> Result:
    robust, passes, since = torch.ones(len(subject.x), dtype=torch.bool), 0, time.perf_counter()
    broke = []
    for specification in ensembles.members(name, norm):
        left = robust.nonzero().flatten()
        member = shrunk(registry.build(specification, norm, eps), shrink)
        if len(left):
            result = attack(
                subject.model, subject.x[left], subject.y[left], member, seed=seed, numbers=left.tolist(),
                batch_size=len(subject.x),
            )  # fmt: skip
            robust[left] = ~result.success
            passes += int((result.forwards + result.backwards).sum())
        broke.append(len(left) - int(robust.sum()))
    return Result(robust, passes / len(subject.x), time.perf_counter() - since, " ".join(map(str, broke)))


def shrunk(member: Attack, by: int) -> Attack:
    if isinstance(member, Square):
        return replace(member, queries=member.queries // by)
    assert isinstance(member, (Ascent, FAB))
    return replace(member, steps=member.steps // by)


def theirs(subject: Subject, norm: str, eps: float, name: str, shrink: int, seed: int) -> Result:
    from autoattack import AutoAttack

    counted = Counted(subject.model).eval()
    peer = AutoAttack(counted, norm=norm, eps=eps, seed=seed, verbose=False, device="cpu", version=VERSIONS[name])
    for apgd in (peer.apgd, peer.apgd_targeted):
        apgd.n_iter = apgd.n_iter_orig = apgd.n_iter // shrink
        apgd.n_iter_2, apgd.n_iter_min, apgd.size_decr = (
            max(int(share * apgd.n_iter), 1) for share in (0.22, 0.06, 0.03)
        )
    peer.fab.n_iter //= shrink
    peer.square.n_queries //= shrink
    since = time.perf_counter()
    points = peer.run_standard_evaluation(subject.x, subject.y, bs=len(subject.x))
    seconds = time.perf_counter() - since
    inside = (points - subject.x).flatten(1).norm(p=ORDER[norm], dim=1) <= eps * (1 + 1e-5) + 1e-6
    with torch.no_grad():
        right = subject.model(points).argmax(1) == subject.y
    return Result(right | ~inside, counted.passes / len(subject.x), seconds, "-")


def compared(about: tuple[Subject, str, float, str, int], mine: list[Result], other: list[Result]) -> Row:
    subject, norm, eps, name, shrink = about
    pairs = list(zip(mine, other, strict=True))
    ours_only = sum(int((~one.robust & two.robust).sum()) for one, two in pairs)
    theirs_only = sum(int((one.robust & ~two.robust).sum()) for one, two in pairs)
    return Row(
        subject.name, norm, f"{eps:.4g}", name, shrink, len(subject.x), shares(mine), shares(other), ours_only,
        theirs_only, mine[0].broke, mcnemar(ours_only, theirs_only),
        mean([each.passes for each in mine]), mean([each.passes for each in other]),
        mean([each.seconds for each in mine]), mean([each.seconds for each in other]),
    )  # fmt: skip


def shares(results: list[Result]) -> str:
    return " ".join(f"{100 * each.robust.double().mean():.1f}" for each in results)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def show(row: Row, file: Path | None) -> None:
    print(
        f"| {row.network} | {row.norm} | {row.eps} | {row.n} | {row.ours_robust} | {row.theirs_robust} | "
        f"{row.ours_only} / {row.theirs_only} | {row.broke} | {row.p_value:.2g} | {row.ours_passes:,.0f} | "
        f"{row.theirs_passes:,.0f} | {row.ours_s:.0f} / {row.theirs_s:.0f} |",
        flush=True,
    )
    append(row, file)


def main() -> None:
    command = parser(__doc__, RADII, images=64, seeds=1)
    command.add_argument("--ensemble", choices=list(VERSIONS), default="autoattack")
    command.add_argument("--shrink", type=int, default=1, help="divides the steps and queries of both")
    options = parsed(command)
    torch.set_num_threads(1)
    for network in options.only.split(","):
        images, radii = RADII[network]
        subject = zoo(options.zoo, network, images, options.images)
        for norm in options.norms.split(","):
            about = (subject, norm, radii[norm], options.ensemble, options.shrink)
            seeds = range(options.seeds)
            mine, other = ([run(*about, seed) for seed in seeds] for run in (ours, theirs))
            show(compared(about, mine, other), options.csv)


if __name__ == "__main__":
    main()
