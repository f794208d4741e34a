"""Whether automatic checks stay silent on honest networks.

    python bench/checks.py [--zoo DIR] [--images 100] [--level standard] [--only zoo,digits]

Networks: those of the zoo (clean, PGD, TRADES, certified; see bench/README.md) at two radii each, and small networks on
scikit-learn's digits, trained cleanly and on images of PGD, with three seeds each. Attacked by the default ensemble.
An alarm is a check whose status is "invalid"; warnings are counted apart. The table is in bench/checks.md.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from diagnose import hardened
from subjects import _imported
from torch import Tensor, nn

from robustkit import evaluate, load_dataset, masked_defenses

RADII = {"mnist": ("0.1", "0.2"), "cifar": ("1/255", "2/255")}


class Case(NamedTuple):
    name: str
    model: nn.Module
    x: Tensor
    y: Tensor
    radii: tuple[str, ...]


def zoo(folder: Path, count: int) -> Iterator[Case]:
    module = _imported(folder / "zoo.py")
    for name in module.NAMES:
        data = "mnist" if "mnist" in name else "cifar"
        x, y = module.images("mnist" if data == "mnist" else "cifar10")
        yield Case(name, module.model(name), x[:count], y[:count], RADII[data])


def digits(count: int) -> Iterator[Case]:
    x, y = load_dataset("digits").batch(range(count))
    for seed in range(3):
        network = masked_defenses.base_network(seed)
        yield Case(f"digits, clean, seed {seed}", network, x, y, ("0.05", "0.1"))
        torch.manual_seed(seed)
        yield Case(f"digits, PGD, seed {seed}", hardened(masked_defenses.base_network(seed)), x, y, ("0.1", "0.2"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--level", default="standard")
    parser.add_argument("--only", default="zoo,digits")
    parser.add_argument("--attack", default="default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = options.only.split(",")
    cases = [
        *(zoo(options.zoo, options.images) if options.zoo and "zoo" in parts else ()),
        *(digits(options.images) if "digits" in parts else ()),
    ]
    print("| network | radii | clean | robust | checks | alarms | warnings |")
    print("|---|---|---|---|---|---|---|")
    totals = [0, 0, 0]
    for case in cases:
        run = evaluate(case.model, dataset=(case.x, case.y), attacks=options.attack, eps=case.radii, progress=False,
                       checks=options.level)  # fmt: skip
        applied = [check for check in run.checks if check.status in ("ok", "warning", "invalid")]
        alarms = [check for check in applied if check.status == "invalid"]
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
