"""Convolutions of small maps against products with matrices: `python bench/small_maps.py`.

Prints, for each size of the map and each kernel, the time of the product in that of the convolution: forwards and
backwards in the input, of 16, 64 and 256 rows. The least of several runs in one process.
"""

import time
from itertools import product

import click
import torch
from torch import Tensor, nn

from robustkit.classifier import small_maps

_SHAPES = [(1, 1, 1), (1, 3, 1), (2, 1, 2), (2, 3, 1), (2, 3, 2), (2, 1, 1), (3, 3, 1), (4, 3, 2), (4, 3, 1)]
_ROWS = (16, 64, 256)


def _seconds(network: nn.Module, x: Tensor, runs: int = 14) -> float:
    least = float("inf")
    for _ in range(runs):
        begun = time.perf_counter()
        point = x.requires_grad_()
        torch.autograd.grad(network(point).sum(), point)
        least = min(least, time.perf_counter() - begun)
    return least


def _ratio(convolution: nn.Conv2d, x: Tensor) -> float:
    network = nn.Sequential(convolution)
    whole = _seconds(network, x)
    small_maps.as_matrices(network)
    return _seconds(network, x) / whole


@click.command()
@click.option("--threads", type=int, default=2, show_default=True)
def main(threads: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    small_maps._ENTRIES = 64  # larger products too, to see where they stop to pay
    print(f"torch {torch.__version__}, {threads} threads\n")
    print(
        "| map | kernel | stride | channels | entries / weights | "
        + " | ".join(f"{rows} rows" for rows in _ROWS)
        + " |"
    )
    print("|---" * (5 + len(_ROWS)) + "|")
    for (size, kernel, stride), channels in product(_SHAPES, (32, 64, 128, 256)):
        if size > 2 and channels > 128:
            continue
        ratios = []
        for rows in _ROWS:
            convolution = nn.Conv2d(channels, channels, kernel, stride, kernel // 2).requires_grad_(False)
            x = torch.rand(rows, channels, size, size)
            ratios.append(_ratio(convolution, x))
        pairs = (size * convolution(x).shape[-1]) ** 2 / kernel**2
        cells = [
            f"{size} x {size}",
            f"{kernel} x {kernel}",
            stride,
            channels,
            f"{pairs:.1f}",
            *(f"{r:.2f}" for r in ratios),
        ]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
