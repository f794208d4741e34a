"""Sign vectors that are flipped block by block: all values, then halves, then quarters, down to single values.

The order of the values is that of memory: channels, then rows. Both SignHunter and RayS search in this way.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along


class Block(NamedTuple):
    """Where a row's search is."""

    level: Tensor  # [B] int64: the values are split into 2^level blocks
    number: Tensor  # [B] int64 of the block


def first_signs(trials: Trials) -> Tensor:
    """Ones, as in both papers; random signs for later restarts, which would else repeat the first one."""
    random = noise.signs(trials.key, 0, trials.x.shape[1:]).to(trials.x)
    return torch.where(along(trials.restart > 0, random), random, 1)


def flipped(signs: Tensor, block: Block) -> Tensor:
    """The signs with one block's turned round."""
    size = _size(block, signs[0].numel())
    place = torch.arange(signs[0].numel(), device=signs.device) // size.unsqueeze(1)
    return torch.where((place == block.number.unsqueeze(1)).reshape(signs.shape), -signs, signs)


def after(block: Block, moves: Tensor, values: int) -> Block:
    """The next block in rows `moves` `[B]`; the one of all values after the last single value."""
    size = _size(block, values)
    number = block.number + 1
    last = number * size >= values
    level = torch.where(last, torch.where(size > 1, block.level + 1, 0), block.level)
    return Block(torch.where(moves, level, block.level), torch.where(moves, number.masked_fill(last, 0), block.number))


def _size(block: Block, values: int) -> Tensor:
    parts = torch.ones_like(block.level) << block.level
    return (values + parts - 1) // parts
