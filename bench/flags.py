"""Does the default ensemble warn on honest networks? Those of `bench/diagnose.py`, stock architectures among them.

    python bench/flags.py [--zoo DIR] [--images 32] [--norm Linf] [--attack rk-14] [--only zoo,rough,architectures]

In L2 the radius is that of Linf times 10, in L1 times 100: of the order that attacks need on these small images. The
numbers of each network are about the images that the first member leaves: the least and the most that a short step from
the clean image gains of what the gradient predicts, the least of the whole way, and the most that values without a
gradient move of it.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from diagnose import Case, bending, pooled, stock, trained, zoo
from torch.utils.data import TensorDataset

from robustkit import evaluate, load_dataset, load_model
from robustkit.evidence.rows import NearnessRecord
from robustkit.evidence.store import Store
from robustkit.models import CleanRecipe
from robustkit.primitives.threat import radius

_TIMES = {"Linf": 1, "L2": 10, "L1": 100}
# The usual recipe trains some of these for longer.
FEW_EPOCHS = CleanRecipe(good=0.0)
# Few epochs on digits leave some of these rough: a move of 0.01 along the gradient gains a third of what it predicts.
_ROUGH = ("densenet121", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x0_5", "squeezenet1_0")
_ARCHITECTURES = (
    "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mobilenet_v2", "mobilenet_v3_large",
    "mobilenet_v3_small", "resnet18", "resnet34", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5",
    "squeezenet1_0", "squeezenet1_1",
)  # fmt: skip
_CHOSEN = ("densenet121", "googlenet", "mobilenet_v2", "shufflenet_v2_x0_5")  # limits were chosen on these


def on_digits(count: int, names: tuple[str, ...], radii: tuple[str, ...]) -> Iterator[Case]:
    """Networks of torchvision that robustkit trains on digits."""
    x, y = load_dataset("digits").batch(range(count))
    for name in names:
        model = load_model(name, dataset="digits", recipe=FEW_EPOCHS)
        for eps in radii:
            yield Case(name, model, x, y, eps, name in _CHOSEN)


def looked_at(case: Case, norm: str, attack: str) -> tuple[list[str], str]:
    """The warnings of a run that doubt its verdict, and what the clean images show."""
    right = case.model(case.x).argmax(1) == case.y
    eps = _TIMES[norm] * radius("Linf", case.eps)
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(
            case.model.eval(), dataset=TensorDataset(case.x[right], case.y[right]), attacks=attack, norm=norm, eps=eps,
            samples=None, out=folder,
        )  # fmt: skip
        store = Store(Path(folder), reading=True)
        rows = [row for row in store.rows(NearnessRecord, run.results.model.iloc[0]) if row.attack.endswith("/first")]
        store.close()
    warnings = [str(each) for each in run.manifest["warnings"]]
    if not rows:
        return warnings, "  broken"
    steps, ways, unseen = zip(*((row.clean_step, row.clean_way, row.clean_unseen) for row in rows), strict=True)
    return warnings, f"{min(steps):6.3f} {max(steps):6.3f} {min(ways):6.3f} {max(unseen):6.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--norm", choices=list(_TIMES), default="Linf")
    parser.add_argument("--attack", default="default", help="an ensemble of robustkit")
    parser.add_argument("--only", default="trained,bending,stock,zoo")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sources: dict[str, list[Callable[[], Iterator[Case]]]] = {
        "zoo": [] if options.zoo is None else [partial(zoo, options.zoo, options.images)],
        "trained": [partial(trained, options.images)],
        "bending": [partial(pooled, options.images), partial(bending, options.images)],
        "stock": [stock],
        "rough": [partial(on_digits, options.images, _ROUGH, ("0.005", "0.01", "0.02", "0.1"))],
        "architectures": [partial(on_digits, options.images, _ARCHITECTURES, ("0.005", "0.01", "0.02", "0.05", "0.1"))],
    }
    looks = flagged = 0
    for name in options.only.split(","):
        for source in sources[name]:
            for case in source():
                found, seen = looked_at(case, options.norm, options.attack)
                looks, flagged = looks + 1, flagged + bool(found)
                print(f"{case.name:32} {case.eps:>6}  {seen}  {'; '.join(found) or '-'}", flush=True)
    print(f"{flagged} of {looks} warned in {options.norm}")


if __name__ == "__main__":
    main()
