"""Do noise, blur and contrast reduction get as near as foolbox's after as many queries?

Foolbox runs image by image; `black_box.Watched` counts every row that it sends and stops it when the budget is spent.
The nearest error is looked for, whatever its distance; noise of a given length is compared by the share that it breaks.

    python bench/noise.py --zoo DIR [--networks cnn_a_cifar,trades_mnist] [--images 32]
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import black_box
import torch
from black_box import RADII, SpentError, Watched
from robustkit.attacks import ContrastReduction, GaussianBlur, GaussianNoise, Noise, SaltAndPepper, UniformNoise
from subjects import Subject, zoo
from torch import Tensor, nn

from robustkit import attack
from robustkit.primitives.protocol import Attack

SEEDS = (0, 1, 2)


def line(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def foolbox(name: str, values: dict[str, object], epsilon: float | None = None) -> Callable[..., object]:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> None:
        import foolbox as fb

        made = getattr(fb.attacks, name)(**values)
        given = {} if epsilon is None else {"epsilon": epsilon}
        made.run(fb.PyTorchModel(model.eval(), bounds=(0, 1)), x, fb.criteria.Misclassification(y), **given)

    return run


def theirs(subject: Subject, norm: str, budget: int, peer: Callable[..., object], seed: int = 0) -> Tensor:
    """Distances of the nearest errors among the points that a peer sends."""
    black_box.BUDGETS = (budget,)
    found = []
    for row in range(len(subject.x)):
        torch.manual_seed(1000 * seed + row)
        x, y = subject.x[row : row + 1], subject.y[row : row + 1]
        model = Watched(subject.model, x, y, norm)
        with contextlib.suppress(SpentError):
            peer(model, x, y)
        found.append(model.nearest)
    return torch.tensor(found)


def ours(subject: Subject, norm: str, method: Attack, seed: int = 0) -> Tensor:
    result = attack(subject.model, subject.x, subject.y, method, seed=seed)
    away = (result.x_adv - subject.x).flatten(1).norm(p=black_box.ORDER[norm], dim=1)
    return away.masked_fill(~result.success, torch.inf)


def nearest(subject: Subject, budgets: Sequence[int], only: str) -> None:
    for budget in budgets:
        rows: list[tuple[str, str, Attack, str, dict[str, object]]] = [
            ("blur", "L2", GaussianBlur("minimum", "L2", queries=budget + 1, steps=budget - 12, halvings=10),
             "GaussianBlurAttack", {"distance": None, "steps": budget}),
            ("contrast reduction", "L2",
             ContrastReduction("minimum", "L2", queries=budget + 1, steps=budget - 12, halvings=10),
             "LinearSearchContrastReductionAttack", {"distance": None, "steps": budget}),
            ("salt and pepper", "L2", SaltAndPepper("minimum", "L2", queries=budget + 1),
             "SaltAndPepperNoiseAttack", {"steps": budget}),
        ]  # fmt: skip
        for what, norm, method, name, values in rows:
            if not what.startswith(only):
                continue
            import foolbox as fb

            given = {**values, **({"distance": fb.distances.l2} if "distance" in values else {})}
            seeds = SEEDS if what == "salt and pepper" else SEEDS[:1]  # the others draw nothing
            mine = partial(ours, subject, norm, method)
            other = partial(theirs, subject, norm, budget, foolbox(name, given))
            line(what, norm, subject.name, budget, *(medians(run, seeds) for run in (mine, other)))


def medians(run: Callable[[int], Tensor], seeds: Sequence[int]) -> str:
    """Median distances by seed, their geometric mean over all images with an error, those without one, and CPU time."""
    since = time.process_time()
    found = torch.stack([run(seed) for seed in seeds])
    seconds = time.process_time() - since
    middle = " ".join(f"{each.quantile(0.5, interpolation='lower'):.3f}" for each in found)
    mean = found[found.isfinite()].log().mean().exp()
    return f"{middle}, mean {mean:.3f}, none in {found.isinf().sum(1).tolist()}, {seconds:.0f} s"


def broken(subject: Subject, radii: dict[str, float]) -> None:
    """Images that noise of a given length breaks, at four times the radius that gradients need."""
    for norm, name, method in (
        ("L2", "L2ClippingAwareRepeatedAdditiveGaussianNoiseAttack", GaussianNoise),
        ("L2", "L2RepeatedAdditiveGaussianNoiseAttack", GaussianNoise),
        ("L2", "L2ClippingAwareRepeatedAdditiveUniformNoiseAttack", UniformNoise),
        ("Linf", "LinfRepeatedAdditiveUniformNoiseAttack", UniformNoise),
        ("Linf", "LinfRepeatedAdditiveUniformNoiseAttack", Noise),
    ):
        eps = min(4 * radii[norm], 1.0) if norm == "Linf" else 4 * radii[norm]
        mine = [int(ours(subject, norm, method(eps, norm, queries=100), seed).isfinite().sum()) for seed in SEEDS]
        peer = foolbox(name, {"repeats": 100, "check_trivial": False}, eps)
        nearest = [theirs(subject, norm, 100, peer, seed) for seed in SEEDS]
        their = [int(each.isfinite().sum()) for each in nearest]
        within = [int((each <= eps * 1.0001).sum()) for each in nearest]
        line(method.__name__, name, norm, f"{eps:.3g}", subject.name, mine, their, f"within the radius {within}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--networks", default="cnn_a_cifar,trades_mnist")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--budgets", default="100,1000")
    parser.add_argument("--parts", default="nearest,broken")
    parser.add_argument("--only", default="", help="beginning of the names of the nearest ones")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for network in given.networks.split(","):
        images, radii = RADII[network]
        subject = zoo(given.zoo, network, images, given.images)
        if "nearest" in given.parts:
            nearest(subject, [int(budget) for budget in given.budgets.split(",")], given.only)
        if "broken" in given.parts:
            broken(subject, radii)
