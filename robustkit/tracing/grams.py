"""Gram matrices of every call's outputs over all images, although no machine holds all outputs at once.

An inner product is a sum over features. So the features of all calls are numbered through, and each sweep over the
images keeps as many of them as there is room for: one sweep for a small network, more for a large one.
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
    moved: Tensor


def grams(
    runner: Runner, pairs: Pairs, widths: Mapping[Key, int], tile: int, room: int = ROOM
) -> Iterator[tuple[Key, Grams]]:
    """The Gram matrices of each call as soon as it is complete, so that not all are held together.

    Args:
        runner: asks the network.
        pairs: the images.
        widths: the calls, and how many values their outputs have for one image.
        tile: how many images go through at once.
        room: how many values may be held.
    """
    n = len(pairs)
    found: dict[Key, Grams] = {}
    for wanted in _sweeps(widths, max(1, room // (2 * n))):
        parts: dict[Key, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for some, real in tiles(pairs, tile):
            clean, moved = runner.slices(some.x, wanted), runner.slices(some.x_adv, wanted)
            for key in wanted:
                parts[key].append((clean[key][:real], moved[key][:real]))
        for key, span in wanted.items():
            both = [gram(torch.cat(side)).cpu() for side in zip(*parts.pop(key), strict=True)]
            # At most one call is cut by the end of a sweep.
            so_far = found.pop(key, None)
            sums = Grams(*both) if so_far is None else Grams(*(a + b for a, b in zip(so_far, both, strict=True)))
            if span.stop == widths[key]:
                yield key, sums
            else:
                found[key] = sums


def _sweeps(widths: Mapping[Key, int], most: int) -> Sequence[dict[Key, slice]]:
    """The features of all calls in packs of `most`, each a part of every call that it touches."""
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
