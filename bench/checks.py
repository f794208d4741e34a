"""Whether automatic checks stay silent on honest networks.

    python bench/checks.py [--zoo DIR] [--images 100] [--level standard] [--only zoo,digits,held-out]

Networks: those of the zoo (clean, PGD, TRADES, certified; see bench/README.md) at two radii each, and small networks on
scikit-learn's digits, trained cleanly and on images of PGD, with three seeds each. Attacked by the default ensemble.
Thresholds were chosen while these were looked at. The held-out part has other architectures and losses, other seeds and
other images: linear, perceptron, batch norm, label smoothing, and batch norm trained on images of PGD.
An alarm is a check whose status is "failed"; warnings are counted apart. The table is in bench/checks.md.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from diagnose import hardened
from subjects import _imported
from torch import Tensor, nn

from robustkit import evaluate, load_dataset, masked_defenses
from robustkit.masked_defenses.base import fit

RADII = {"mnist": ("0.1", "0.2"), "cifar": ("1/255", "2/255")}


class Case(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    radii: tuple[str, ...]


def zoo(folder: Path, count: int) -> Iterator[Case]:
    module = _imported(folder / "zoo.py")
    for name in module.NAMES:
        data = "mnist" if "mnist" in name else "cifar"
        x, y = module.images("mnist" if data == "mnist" else "cifar10")
        yield Case(name, partial(module.model, name), x[:count], y[:count], RADII[data])


def digits(count: int) -> Iterator[Case]:
    x, y = load_dataset("digits").batch(range(count))
    for seed in range(3):
        yield Case(f"digits, clean, seed {seed}", partial(masked_defenses.base_network, seed), x, y, ("0.05", "0.1"))
        yield Case(f"digits, PGD, seed {seed}", partial(_hardened, seed), x, y, ("0.1", "0.2"))


def _hardened(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return hardened(masked_defenses.base_network(seed))


def held_out(count: int) -> Iterator[Case]:
    """Networks, seeds and images that no threshold was chosen on."""
    data = load_dataset("digits")
    x, y = data.batch(range(200, min(200 + count, len(data))))
    for seed in (3, 4):
        for name, make in HELD_OUT.items():
            radii = ("0.1", "0.2") if "PGD" in name else ("0.05", "0.1")
            yield Case(f"digits, {name}, seed {seed}", partial(make, seed), x, y, radii)


def _trained(new: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return fit(new(), seed=seed)


def _trained_on_errors(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return hardened(fit(_batch_norm(), seed=seed).train())


def _linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 10))


def _batch_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(192, 10),
    )  # fmt: skip


HELD_OUT: dict[str, Callable[[int], nn.Module]] = {
    "linear": partial(_trained, _linear), "perceptron": partial(_trained, _perceptron),
    "batch norm": partial(_trained, _batch_norm), "batch norm, PGD": _trained_on_errors,
    "label smoothing": partial(masked_defenses.base_network, label_smoothing=0.1),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--level", default="standard")
    parser.add_argument("--only", default="zoo,digits")
    parser.add_argument("--attack", default="default")
    parser.add_argument("--network", default="", help="only networks whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = options.only.split(",")
    cases = [
        *(zoo(options.zoo, options.images) if options.zoo and "zoo" in parts else ()),
        *(digits(options.images) if "digits" in parts else ()),
        *(held_out(options.images) if "held-out" in parts else ()),
    ]
    cases = [case for case in cases if options.network in case.name]
    print("| network | radii | clean | robust | checks | alarms | warnings |")
    print("|---|---|---|---|---|---|---|")
    totals = [0, 0, 0]
    for case in cases:
        run = evaluate(case.make(), dataset=(case.x, case.y), attacks=options.attack, eps=case.radii, progress=False,
                       checks=options.level)  # fmt: skip
        applied = [check for check in run.checks if check.status in ("ok", "warning", "failed")]
        alarms = [check for check in applied if check.status == "failed"]
        warned = [check for check in applied if check.status == "warning"]
        robust = run.results[run.results["role"] == "worst-case"]["accuracy"]
        clean = run.results[run.results["role"] == "clean"]["accuracy"].iloc[0]
        words = [", ".join(f"{check.name} {check.threat}" for check in some) or "0" for some in (alarms, warned)]
        print(f"| {case.name} | {' '.join(case.radii)} | {clean:.1%} | {' '.join(f'{each:.1%}' for each in robust)} | "
              f"{len(applied)} | {words[0]} | {words[1]} |", flush=True)  # fmt: skip
        totals = [totals[0] + len(applied), totals[1] + len(alarms), totals[2] + len(warned)]
    print(f"\n{len(cases)} networks, {totals[0]} checks applied: {totals[1]} alarms, {totals[2]} warnings")


if __name__ == "__main__":
    main()
