"""Random numbers of each row: a pure function of the row's key and the number of the draw.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195) used as a counter-based generator: number `c` of the
stream of key `k` is `finalise(k + c * GAMMA)`. It is integer arithmetic, so the bits are the same on every device, in
every batch and in every order. `normal` needs log and cos, whose last digit may differ between devices. On a CPU numpy
computes them: it has unsigned numbers, and takes a half to a quarter of torch's time.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STREAM = 1 << 32  # numbers per draw, more than any image has values
_BLOCK = 1 << 16  # numbers computed at once on a CPU: they fit into its cache, which saves a third of the time


def keys(seed: int, *parts: Tensor) -> Tensor:
    """`[B]` int64 stream keys from a seed and any number of `[B]` int64 parts that identify the row."""
    if parts[0].device.type == "cpu":
        return _signed_bits(_keys(seed, [_unsigned_bits(part) for part in parts]))
    key = torch.full_like(parts[0], _signed(seed * _GAMMA + 1))
    for part in parts:
        key = finalise(key + _signed(_GAMMA)) ^ finalise(part * _signed(_SECOND) + _signed(_FIRST))
    return finalise(key)


def _keys(seed: int, parts: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    key = np.full_like(parts[0], _unsigned(seed * _GAMMA + 1))
    for part in parts:
        key = _mixed(key + _unsigned(_GAMMA)) ^ _mixed(part * _unsigned(_SECOND) + _unsigned(_FIRST))
    return _mixed(key)


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
    if key.device.type == "cpu":
        return _signed_bits(_bits(key, draw, count))
    # A number is multiplied here: as a tensor it would have to be copied to a GPU.
    start = key + (_signed(draw * _STREAM * _GAMMA) if isinstance(draw, int) else draw * _signed(_STREAM * _GAMMA))
    return finalise(start.unsqueeze(1) + torch.arange(1, count + 1, device=key.device).mul_(_signed(_GAMMA)))


def _bits(key: Tensor, draw: Tensor | int, count: int) -> NDArray[np.uint64]:
    step = _unsigned(_STREAM * _GAMMA)
    start = _unsigned_bits(key) + (
        _unsigned(draw * _STREAM * _GAMMA) if isinstance(draw, int) else _unsigned_bits(draw) * step
    )
    return _mixed(start[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _unsigned(_GAMMA))


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
    count = math.prod(shape)
    if key.device.type == "cpu":
        top = torch.from_numpy((_bits(key, draw, count) >> np.uint64(40)).astype(np.float32))
    else:
        top = (bits(key, draw, count) >> 40).bitwise_and_(0xFFFFFF).to(torch.float32)
    return top.mul_(2.0**-24).reshape(len(key), *shape)


def signs(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """`[B, *shape]` float32, each -1 or 1 with equal probability."""
    return (uniform(key, draw, shape) >= 0.5).to(torch.float32) * 2 - 1


def normal(key: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """`[B, *shape]` float32 standard normal numbers (Box & Muller)."""
    first, second = uniform(key, draw, (2, *shape)).unbind(1)
    return (-2 * (first + 2.0**-25).log()).sqrt() * (2 * math.pi * second).cos()


def finalise(z: Tensor) -> Tensor:
    """SplitMix64's mixing function on int64; products wrap modulo 2^64."""
    if z.device.type == "cpu":
        return _signed_bits(_mixed(_unsigned_bits(z)))
    # In place after the first operation: for a batch of 64 images, most of the time would else go into new memory.
    z = (z ^ _shifted(z, 30)).mul_(_signed(_FIRST))
    z = z.bitwise_xor_(_shifted(z, 27)).mul_(_signed(_SECOND))
    return z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: Tensor, by: int) -> Tensor:
    # torch shifts int64 arithmetically; with the mask it is the logical shift of the paper.
    return (z >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z ^ (z >> np.uint64(30))
    z *= _unsigned(_FIRST)
    z ^= z >> np.uint64(27)
    z *= _unsigned(_SECOND)
    z ^= z >> np.uint64(31)
    return z


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _unsigned(value: int) -> np.uint64:
    return np.uint64(value & ((1 << 64) - 1))


def _unsigned_bits(values: Tensor) -> NDArray[np.uint64]:
    return values.numpy().view(np.uint64)


def _signed_bits(values: NDArray[np.uint64]) -> Tensor:
    return torch.from_numpy(values.view(np.int64))
