"""Is Square as strong as its authors' code, which no package on PyPI has in L1?

The same images, radii, budget and judge for both; images x seeds are paired. `--autoattack DIR` is a checkout of
https://github.com/fra31/auto-attack.

    python bench/square.py --zoo DIR --autoattack DIR [--only trades_mnist] [--images 64] [--seeds 3] [--csv FILE]
"""

import torch
from authors import parsed, parser
from parity import BATCH, QUERIES, Comparison, Peer, compared, ours, show, theirs
from robustkit.attacks import Square
from subjects import zoo
from torch import Tensor, nn

# Radii at which about half of the images stand: there a difference in strength shows best.
RADII = {
    "trades_mnist": ("mnist", {"Linf": 0.34, "L2": 2.0, "L1": 12.0}),
    "smallcnn_mnist": ("mnist", {"Linf": 0.15, "L2": 2.0, "L1": 12.0}),
    "cnn_a_cifar": ("cifar10", {"Linf": 5 / 255, "L2": 1.0, "L1": 12.0}),
    "resnet2b_cifar": ("cifar10", {"Linf": 6 / 255, "L2": 1.0, "L1": 10.0}),
}


def authors(norm: str, eps: float) -> Peer:
    from autoattack.square import SquareAttack

    def run(model: nn.Module, x: Tensor, y: Tensor, seed: int) -> Tensor:
        # Their budget does not count the start point.
        square = SquareAttack(model, norm=norm, eps=eps, n_queries=QUERIES - 1, seed=seed, device="cpu")
        points: Tensor = square.perturb(x, y)
        return points

    return run


def main() -> None:
    options = parsed(parser(__doc__, RADII, images=BATCH, seeds=3))
    torch.set_num_threads(1)
    for network in options.only.split(","):
        images, radii = RADII[network]
        subject = zoo(options.zoo, network, images, options.images)
        for norm in options.norms.split(","):
            eps = radii[norm]
            comparison = Comparison("Square", norm, Square(eps, norm, queries=QUERIES), {})
            peer = authors(norm, eps)
            mine = [ours(subject, comparison, eps, seed) for seed in range(options.seeds)]
            other = [theirs(subject, comparison, eps, seed, peer) for seed in range(options.seeds)]
            show(compared(subject, comparison, "the authors", mine, other), options.csv)


if __name__ == "__main__":
    main()
