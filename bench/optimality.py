"""How close does each L0 attack come to the nearest errors that all of them find together? AttackBench's measure.

Cinà et al. 2025, arXiv:2404.19460: the local optimality of an attack is 1 where its curve of robust accuracy against
distance is the best known one, here the least distance of each image over all attacks of the run, and 0 where it breaks
nothing up to the farthest of those. The budget is AttackBench's, 2000 passes of either kind for each image, and so are
the settings of its PGD, which searches for a number of pixels and is judged by the number of values.

    python bench/optimality.py --zoo DIR [--networks cnn_a_cifar,...] [--images 100] [--passes 2000]
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from nearest import Peer, Reached, advlib, ours, reached
from subjects import zoo
from torch import Tensor, nn

from robustkit.primitives.rows import along

NETWORKS = {
    "cnn_a_cifar": "cifar10", "resnet2b_cifar": "cifar10", "base_kw_cifar": "cifar10", "resnet20_cifar": "cifar10"
}  # fmt: skip
RADII = 10  # of the search of PGD
FIRST_PIXELS, MOST_PIXELS = 100, 1000
STEP = 120_000 / 255  # along a gradient whose absolute values add up to 1


def attacks(passes: int) -> dict[str, Peer]:
    steps = passes // 2
    return {
        "sigma-zero": partial(ours, specification=f"sigma-zero:steps={steps}", norm="L0"),
        "sigma-zero, adv-lib": advlib("sigma_zero", "sigma_zero", num_steps=steps),
        "FMN": partial(ours, specification=f"fmn:steps={steps}", norm="L0"),
        "VFGA": partial(ours, specification="vfga:steps=1000", norm="L0"),
        "VFGA, adv-lib": advlib("stochastic_sparse_attacks", "vfga", targeted=False, max_iter=1000),
        "PGD, values": partial(ours, specification=f"pgd:steps={steps // RADII},radii={RADII}", norm="L0"),
        "PGD, pixels": partial(pixel_search, steps=steps // RADII),
    }


def pixel_search(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Tensor:
    """The points with the fewest changed pixels: their number doubles until there is an error, and is then halved."""
    best, found = x.clone(), torch.zeros_like(y, dtype=torch.bool)
    low, high = torch.zeros_like(y), torch.full_like(y, MOST_PIXELS)
    pixels = torch.full_like(y, FIRST_PIXELS)
    for _ in range(RADII):
        point, error = pixel_pgd(model, x, y, pixels, steps)
        best = torch.where(along(error, x), point, best)
        found |= error
        low, high = torch.where(error, low, pixels), torch.where(error, pixels, high)
        pixels = torch.where(found | (2 * low >= high), (low + high) // 2, 2 * low).clamp(min=1)
    return best


def pixel_pgd(model: nn.Module, x: Tensor, y: Tensor, pixels: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The last error within `pixels` [N] pixels of each image, and where there is one (Croce & Hein 2019)."""
    best, found = x.clone(), torch.zeros_like(y, dtype=torch.bool)
    point = fewest(x, torch.rand_like(x), pixels)
    for _ in range(steps):
        point = point.detach().requires_grad_()
        logits = model(point)
        grad = torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), point)[0]
        error = logits.argmax(1) != y
        best, found = torch.where(along(error, x), point.detach(), best), found | error
        length = along(grad.abs().flatten(1).sum(1) + 1e-10, x)
        point = fewest(x, point.detach() + STEP * grad / length, pixels)
    return best, found


def fewest(x: Tensor, point: Tensor, pixels: Tensor) -> Tensor:
    """The nearest point in L2 that lies in the box and differs from the image in so many pixels `[N]`."""
    inside = point.clamp(0, 1)
    gain = ((point - x).square() - (point - inside).square()).sum(1).flatten(1)  # of changing a pixel
    least = gain.sort(1, descending=True).values.gather(1, pixels.unsqueeze(1) - 1)
    kept = (gain >= least).reshape(len(x), 1, *x.shape[2:])
    return torch.where(kept, inside, x)


def optimality(distance: Tensor, best: Tensor) -> float:
    """1 for the best known distances, 0 for none up to the farthest of them."""
    most = best.max()
    known = area(best, most)
    return float(1 - (area(distance, most) - known) / (most - known))


def area(distance: Tensor, most: Tensor) -> Tensor:
    """Under the curve of robust accuracy from distance 0 to `most`, by trapezoids as AttackBench has it."""
    levels, counts = distance.clamp(max=most).unique(return_counts=True)
    standing = 1 - counts.cumsum(0) / len(distance)
    return torch.trapezoid(torch.cat([torch.ones(1), standing]), torch.cat([torch.zeros(1).to(levels), levels]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--passes", type=int, default=2000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | attack | optimality | median | mean | no error | F | B | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for network in given.networks.split(","):
        subject = zoo(given.zoo, network, NETWORKS[network], given.images)
        results: dict[str, Reached] = {}
        for name, attack in attacks(given.passes).items():
            results[name] = reached(subject, "L0", attack)
        best = torch.stack([result.distance for result in results.values()]).amin(0)
        for name, result in results.items():
            finite = result.distance[result.distance.isfinite()]
            share = f"{100 * optimality(result.distance, best):.1f} %"
            print(
                f"| {network} | {name} | {share} | {result.distance.median():g} "
                f"| {finite.mean():.2f} | {len(best) - len(finite)} | {result.forwards:.0f} | {result.backwards:.0f} "
                f"| {result.seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
