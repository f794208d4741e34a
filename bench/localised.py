"""Which images do attacks in a patch and in a frame break, and is Sparse-RS as strong as its authors' code?

The same images, budgets and judge for all. In the patch, `patch_search` is compared with the search of Wu et al. 2020
(arXiv:1909.09552), written here from the paper: rank all places by the gradient's square, try the best ones with a grey
patch, then PGD inside the worst, with as many gradients in all. The authors' Sparse-RS runs image by image, because one
draw serves its whole batch; it needs images of three channels.

    python bench/localised.py --zoo DIR --sparse-rs DIR [--only cnn_a_cifar] [--images 32] [--seeds 2] [--queries 500]
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from robustkit.attacks import APGD, PGD, PatchSearch, SparseRS
from subjects import Subject, zoo
from torch import Tensor, nn

import robustkit
from robustkit.primitives.local_balls import Patch
from robustkit.primitives.protocol import Attack
from robustkit.primitives.threat import ball
from robustkit.primitives.windows import pixels, window, window_sums

# Sides and widths at which attacks break some images and not all.
RADII = {
    "trades_mnist": ("mnist", {"patch": 6, "frame": 5}),
    "cnn_a_cifar": ("cifar10", {"patch": 3, "frame": 1}),
    "resnet2b_cifar": ("cifar10", {"patch": 3, "frame": 1}),
}
STEPS, PLACES = 100, 50

Points = Callable[[int], Tensor]  # [N, *S] the last points of a run with a seed


def ours(subject: Subject, method: Attack) -> Points:
    def run(seed: int) -> Tensor:
        points: Tensor = robustkit.attack(subject.model, subject.x, subject.y, method, seed=seed).x_adv
        return points

    return run


def published_search(subject: Subject, side: int, step_size: float) -> Points:
    """Gradient-based search for the place, then PGD with `STEPS` gradients in all; the seed draws the start."""
    model, x, y = subject.model, subject.x, subject.y

    def gradient(point: Tensor) -> Tensor:
        point = point.clone().requires_grad_()
        loss = nn.functional.cross_entropy(model(point), y, reduction="sum")
        return torch.autograd.grad(loss, point)[0]

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        worth = window_sums(pixels(gradient(x).square()), side, side)
        order = worth.flatten(1).topk(PLACES, 1).indices
        best = torch.full((len(x),), -torch.inf)
        place = order[:, 0]
        for candidate in order.unbind(1):
            inside = window(candidate // worth.shape[2], candidate % worth.shape[2], side, side, x)
            with torch.no_grad():
                loss = nn.functional.cross_entropy(model(torch.where(inside, 0.5, x)), y, reduction="none")
            place, best = torch.where(loss > best, candidate, place), torch.maximum(loss, best)
        inside = window(place // worth.shape[2], place % worth.shape[2], side, side, x)
        point = torch.where(inside, torch.rand_like(x), x)
        last, broken = point, torch.zeros(len(x), dtype=torch.bool)
        for _ in range(STEPS - 1 - PLACES):
            with torch.no_grad():
                wrong = model(point).argmax(1) != y
            last = torch.where((wrong & ~broken).reshape(-1, 1, 1, 1), point, last)
            broken |= wrong
            point = torch.where(inside, (point + step_size * gradient(point).sign()).clamp(0, 1), x)
        return torch.where(broken.reshape(-1, 1, 1, 1), last, point)

    return run


def authors(subject: Subject, norm: str, eps: int, queries: int) -> Points:
    from rs_attacks import RSAttack

    kind, radius, share = ("patches", eps**2, 0.4) if norm == "patch" else ("frames", eps, 0.5)

    def run(seed: int) -> Tensor:
        points = []
        for x, y in zip(subject.x.split(1), subject.y.split(1), strict=True):
            made = RSAttack(
                subject.model, norm=kind, eps=radius, n_queries=queries, p_init=share, seed=seed, verbose=False
            )
            with torch.no_grad():
                points.append(made.perturb(x, y)[1])
        return torch.cat(points)

    return run


def show(subject: Subject, norm: str, eps: int, name: str, points: Points, seeds: int) -> None:
    standing, began = [], time.process_time()
    for seed in range(seeds):
        x_adv = points(seed).float()
        assert bool((ball(norm, eps).distance(subject.x, x_adv) <= eps).all()), name
        with torch.no_grad():
            standing.append(int((subject.model(x_adv).argmax(1) == subject.y).sum()))
    seconds = (time.process_time() - began) / seeds
    counts = ", ".join(map(str, standing))
    print(f"| {subject.name} | {norm} {eps} | {name} | {counts} of {len(subject.x)} | {seconds:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="folder with zoo.py")
    parser.add_argument("--sparse-rs", type=Path, help="checkout of https://github.com/fra31/sparse-rs")
    parser.add_argument("--only", help="networks of the zoo, with commas", default=",".join(RADII))
    parser.add_argument("--images", type=int, default=32, help="correctly classified images per network")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=500, help="of Sparse-RS")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.sparse_rs:
        sys.path.insert(0, str(options.sparse_rs))
    for network in options.only.split(","):
        images, radii = RADII[network]
        subject, seeds = zoo(options.zoo, network, images, options.images), options.seeds
        side, width = radii["patch"], radii["frame"]
        assert isinstance(ball("patch", side), Patch)
        for method in (
            PatchSearch(side, "patch", steps=STEPS, places=PLACES),
            PatchSearch(side, "patch", steps=STEPS, places=PLACES, targets=9),
            PatchSearch(side, "patch", steps=STEPS, places=PLACES, restarts=5),
        ):
            name = f"patch_search, {method.trials} trial{'s' if method.trials > 1 else ''}"
            name += " of one class each" if method.targets else ""
            show(subject, "patch", side, name, ours(subject, method), 1)
        for step_size in (0.05, 0.2):
            name = f"Wu et al., steps of {step_size}"
            show(subject, "patch", side, name, published_search(subject, side, step_size), seeds)
        for method in (PGD(width, "frame", steps=STEPS), APGD(width, "frame", steps=STEPS)):
            show(subject, "frame", width, type(method).__name__, ours(subject, method), seeds)
        for norm, eps in radii.items():
            search = SparseRS(eps, norm, queries=options.queries)
            show(subject, norm, eps, "Sparse-RS, ours", ours(subject, search), seeds)
            if options.sparse_rs and subject.x.shape[1] == 3:
                peer = authors(subject, norm, eps, options.queries)
                show(subject, norm, eps, "Sparse-RS, authors", peer, seeds)


if __name__ == "__main__":
    main()
