"""Gram matrices of the outputs of every call over all images, without holding all outputs in memory at once.

An inner product is a sum over features. So each sweep over the images takes as many features as fit into memory, from
the first call to the last: one sweep for a small network, more for a large one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .cka import gram
from .passes import Key, Runner, tiles
from .points import Pairs

ROOM = 1 << 27  # values held at once: half a gigabyte in fp32


class Grams(NamedTuple):
    """`[n, n]` float64 inner products between the images' outputs, before and after the attack."""

    clean: Tensor
    perturbed: Tensor


def grams(
    runner: Runner, pairs: Pairs, widths: Mapping[Key, int], tile: int, room: int = ROOM
) -> Iterator[tuple[Key, Grams]]:
    """The Gram matrices of each call, as soon as they are complete, so that not all are in memory together.

    Args:
        runner: runs the network.
        pairs: the images.
        widths: the calls, and the number of values of their outputs for one image.
        tile: number of images in one pass.
        room: number of values that may be held at once.
    """
    n = len(pairs)
    incomplete: dict[Key, Grams] = {}
    for wanted in _sweeps(widths, max(1, room // (2 * n))):
        parts: dict[Key, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for some, real in tiles(pairs, tile):
            clean, perturbed = runner.slices(some.x, wanted), runner.slices(some.x_adv, wanted)
            for key in wanted:
                parts[key].append((clean[key][:real], perturbed[key][:real]))
        for key, span in wanted.items():
            both = [gram(torch.cat(side)).cpu() for side in zip(*parts.pop(key), strict=True)]
            # Only the last call of a sweep may be incomplete; the next sweep continues it.
            so_far = incomplete.pop(key, None)
            sums = Grams(*both) if so_far is None else Grams(*(a + b for a, b in zip(so_far, both, strict=True)))
            if span.stop == widths[key]:
                yield key, sums
            else:
                incomplete[key] = sums


def _sweeps(widths: Mapping[Key, int], most: int) -> Sequence[dict[Key, slice]]:
    """The features of all calls, split into sweeps of `most` features: for each sweep, a slice of each of its calls."""
    sweeps: list[dict[Key, slice]] = []
    left = 0
    for key, width in widths.items():
        start = 0
        while start < width:
            if left == 0:
                sweeps.append({})
                left = most
            stop = min(width, start + left)
            sweeps[-1][key] = slice(start, stop)
            left -= stop - start
            start = stop
    return sweeps
