"""Sign vectors whose blocks are flipped one after the other: all values, then halves, quarters, down to single values.

SignHunter and RayS search in this way. Blocks are cut from the values in memory order: channels, then rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along


class Block(NamedTuple):
    """The block of each row that is flipped now."""

    level: Tensor  # [B] int64: the values are split into 2^level blocks
    number: Tensor  # [B] int64 position of the block among these, from 0


def first_signs(trials: Trials) -> Tensor:
    """Ones in the first restart, as in both papers; random signs in later ones, which would otherwise repeat it."""
    random = noise.signs(trials.key, 0, trials.x.shape[1:]).to(trials.x)
    return torch.where(along(trials.restart > 0, random), random, 1)


def flipped(signs: Tensor, block: Block) -> Tensor:
    """The signs, those of one block negated."""
    size = _size(block, signs[0].numel())
    place = torch.arange(signs[0].numel(), device=signs.device) // size.unsqueeze(1)
    return torch.where((place == block.number.unsqueeze(1)).reshape(signs.shape), -signs, signs)


def after(block: Block, moves: Tensor, values: int) -> Block:
    """The next block in the rows of `moves` `[B]`; after the last single value, the block of all values again."""
    size = _size(block, values)
    number = block.number + 1
    last = number * size >= values
    level = torch.where(last, torch.where(size > 1, block.level + 1, 0), block.level)
    return Block(torch.where(moves, level, block.level), torch.where(moves, number.masked_fill(last, 0), block.number))


def _size(block: Block, values: int) -> Tensor:
    parts = torch.ones_like(block.level) << block.level
    return (values + parts - 1) // parts
