"""Random numbers of each row: a pure function of the row's key and the number of the draw.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195) used as a counter-based generator: number `c` of the
stream of key `k` is `finalise(k + c * GAMMA)`. It is integer arithmetic, so the bits are the same on every device, in
every batch and in every order. `normal` needs log and cos, whose last digit may differ between devices. On a CPU the
same lines compute with numpy's arrays in place of tensors, which takes less time.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STREAM = 1 << 32  # numbers per draw, more than any image has values
_BLOCK = 1 << 16  # numbers computed at once on a CPU: they fit into its cache, which saves a third of the time


def keys(seed: int, *parts: Tensor) -> Tensor:
    """`[B]` int64 stream keys from a seed and any number of `[B]` int64 parts that identify the row."""
    given = [_quick(part) for part in parts]
    key = given[0] * 0 + _signed(seed * _GAMMA + 1)
    for part in given:
        key = _mixed(key + _signed(_GAMMA)) ^ _mixed(part * _signed(_SECOND) + _signed(_FIRST))
    return _tensor(_mixed(key))


def choose(seed: int, stream: int, numbers: Iterable[int], count: int) -> set[int]:
    """`count` of some numbers, or all if there are fewer, chosen by the seed and each number alone.

    A smaller `count` draws some of the same numbers. A number that is drawn from many is drawn from some of them, too,
    if it is among these. Other streams draw independently.
    """
    given = torch.tensor(sorted(numbers), dtype=torch.int64, device="cpu")
    order = keys(seed, given, torch.full_like(given, stream)).argsort(stable=True)
    return set(given[order[:count]].tolist())


def bits(key: Tensor, draw: Tensor | int, count: int) -> Tensor:
    """`[B, count]` int64 of 64 random bits each; `draw` numbers the draws of a row: an int or `[B]` int64."""
    return _tensor(_bits(key, draw, count))


def _bits(key: Tensor, draw: Tensor | int, count: int) -> Any:
    # A number is multiplied here: as a tensor it would have to be copied to a GPU.
    step = _signed(draw * _STREAM * _GAMMA) if isinstance(draw, int) else _quick(draw) * _signed(_STREAM * _GAMMA)
    start = _quick(key) + step
    numbers = _quick(torch.arange(1, count + 1, device=key.device))
    numbers *= _signed(_GAMMA)
    return _mixed(start[:, None] + numbers)


def uniform(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """`[B, *shape]` float32 in [0, 1), multiples of 2^-24."""
    rows = max(1, _BLOCK // max(math.prod(shape), 1))
    if len(key) <= rows or key.device.type != "cpu":
        return _uniform(key, draw, shape)
    parts = []
    for start in range(0, len(key), rows):
        block = slice(start, start + rows)
        parts.append(_uniform(key[block], draw[block] if isinstance(draw, Tensor) else draw, shape))
    return torch.cat(parts)


def _uniform(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    top = _shifted(_bits(key, draw, math.prod(shape)), 40)
    return _tensor(top).to(torch.float32).mul_(2.0**-24).reshape(len(key), *shape)


def signs(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """`[B, *shape]` float32, each -1 or 1 with equal probability."""
    return (uniform(key, draw, shape) >= 0.5).to(torch.float32) * 2 - 1


def normal(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """`[B, *shape]` float32 standard normal numbers (Box & Muller)."""
    first, second = uniform(key, draw, (2, *shape)).unbind(1)
    return (-2 * (first + 2.0**-25).log()).sqrt() * (2 * math.pi * second).cos()


def finalise(z: Tensor) -> Tensor:
    """SplitMix64's mixing function on int64; products wrap modulo 2^64."""
    return _tensor(_mixed(_quick(z)))


def _mixed(z: Any) -> Any:
    # In place after the first operation: for a batch of 64 images, most of the time would else go into new memory.
    z = z ^ _shifted(z, 30)
    z *= _signed(_FIRST)
    z ^= _shifted(z, 27)
    z *= _signed(_SECOND)
    z ^= _shifted(z, 31)
    return z


def _shifted(z: Any, by: int) -> Any:
    # int64 is shifted arithmetically; with the mask it is the logical shift of the paper.
    z = z >> by
    z &= (1 << (64 - by)) - 1
    return z


def _quick(values: Tensor) -> Any:
    """An array in the memory of a tensor on a CPU; a tensor elsewhere as it is."""
    return values.numpy() if values.device.type == "cpu" else values


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(values) if isinstance(values, np.ndarray) else values


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
