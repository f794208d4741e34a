"""Sparse-RS on patches and frames: random search over the colours of squares in them, and over the place of a patch.

Croce, Andriushchenko, Singh, Flammarion & Hein 2022, arXiv:2006.12834, algorithms 2 and 3, with the schedules of the
authors' code. All values are 0 or 1. Ours differs: every image draws its own place and its own squares (the authors'
code draws one square for a whole batch); images and patches need not be square; where a single pixel draws its old
colour, one of its values is flipped instead of drawing again.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.best import Best, begin_best
from robustkit.primitives.local_balls import Frame, Patch, random_place
from robustkit.primitives.protocol import BestState, Trials
from robustkit.primitives.rows import along
from robustkit.primitives.windows import over_pixels, window

from .._planes import plane

# The share of a patch that a square covers is halved when these of 10 000 queries are spent; those of Square.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
_MOVES_EVERY = 4  # every fourth proposal moves the patch, the others change its colours
_WIDEST_MOVE = 0.75  # largest move at first, as a share of the image's side; it shrinks to nothing over the queries
_MOST_SQUARES = 1000  # most squares that are drawn for the first patch
_DRAWS = 8  # draw numbers reserved for each query


@dataclass(frozen=True)
class PatchState(BestState):
    """The patches of the best point and of the query, of t x w pixels with V values each."""

    patch: Tensor  # [B, V, t, w] the patch of the best point
    row: Tensor  # [B] int64, its upper edge
    column: Tensor  # [B] int64, its left edge
    new_patch: Tensor  # the same three of the query
    new_row: Tensor
    new_column: Tensor


class Schedule(NamedTuple):
    """One number for each query."""

    side: Tensor  # [queries] int64, side of the square that gets a colour
    single: Tensor  # [queries] bool, the square is one pixel, and only one of its values changes


def begin_patch(trials: Trials, ball: Patch) -> PatchState:
    """The state before the first query: a patch of random squares at a random place."""
    x, key = plane(trials.x), trials.key
    tall, wide = ball.sides(x)
    row, column = random_place(x, tall, wide, key, 0)
    patch = _squares(x[:, :, :tall, :wide], key)
    query = _pasted(x, patch, row, column).reshape(trials.x.shape)
    return PatchState(
        **vars(begin_best(trials, query)), patch=patch, row=row, column=column, new_patch=patch, new_row=row,
        new_column=column,
    )  # fmt: skip


def patch_step(state: PatchState, now: Best, budget: int, first_share: float) -> PatchState:
    """The state after an answer; for the next query, the patch moves or a square in it changes its colour."""
    trial, queries = state.trial, state.queries + 1
    x, better = plane(trial.x), now.better
    patch = torch.where(along(better, state.patch), state.new_patch, state.patch)
    row = torch.where(better, state.new_row, state.row)
    column = torch.where(better, state.new_column, state.column)

    height, width = x.shape[-2:]
    tall, wide = patch.shape[-2:]
    share = 1 - queries.double().clamp(max=budget) / budget
    reach = torch.stack([(share * _WIDEST_MOVE * side).long() for side in (height, width)], 1)
    moves = (queries % _MOVES_EVERY == 0) & (reach > 0).any(1)
    spread = noise.uniform(trial.key, queries * _DRAWS, (2,)).double()
    by = (spread * (2 * reach + 1)).long() - reach
    new_row = torch.where(moves, (row + by[:, 0]).clamp(min=0).clamp(max=height - tall), row)
    new_column = torch.where(moves, (column + by[:, 1]).clamp(min=0).clamp(max=width - wide), column)

    schedule = _patch_schedule(budget, first_share, max(tall, wide))
    side, single = (each.to(queries.device).index_select(0, queries.clamp(max=budget - 1)) for each in schedule)
    corner = noise.uniform(trial.key, queries * _DRAWS + 1, (2,)).double()
    rooms = torch.stack([(edge - side).clamp(min=0) + 1 for edge in (tall, wide)], 1)
    top, left = (corner * rooms).long().unbind(1)
    square = window(top, left, side, side, patch)
    coloured = _coloured(patch, square, side, single, trial.key, queries)
    new_patch = torch.where(along(moves, patch), patch, coloured)
    query = _pasted(x, new_patch, new_row, new_column).reshape(trial.x.shape)
    return PatchState(
        trial, query, queries, queries >= budget - 1, now.point, now.loss, patch, row, column, new_patch, new_row,
        new_column,
    )  # fmt: skip


def begin_frame(trials: Trials, ball: Frame) -> BestState:
    """The state before the first query: random zeros and ones in the frame."""
    ends = (noise.uniform(trials.key, 0, trials.x.shape[1:]) >= 0.5).to(trials.x)
    return begin_best(trials, torch.where(over_pixels(ball.pixels(trials.x), trials.x), ends, trials.x))


def frame_step(state: BestState, now: Best, ball: Frame, budget: int, first_share: float) -> BestState:
    """The state after an answer; for the next query, a square at a random pixel of the frame gets one colour."""
    trial, queries = state.trial, state.queries + 1
    point, frame = plane(now.point), ball.pixels(trial.x)
    schedule = _frame_schedule(budget, first_share, int(min(ball.eps, *frame.shape)))
    side, single = (each.to(queries.device).index_select(0, queries.clamp(max=budget - 1)) for each in schedule)
    places = frame.flatten().nonzero().flatten()
    if not len(places):
        return BestState(trial, trial.x, queries, queries >= budget - 1, now.point, now.loss)
    spots = noise.uniform(trial.key, queries * _DRAWS, (3,)).double()
    place = places[(spots[:, 0] * len(places)).long()]
    # The pixel is one corner of the square, which extends up or down and left or right.
    back = torch.where(spots[:, 1:] < 0.5, (side - 1).unsqueeze(1), 0)
    top, left = place // frame.shape[1] - back[:, 0], place % frame.shape[1] - back[:, 1]
    square = window(top, left, side, side, point) & over_pixels(frame, point)
    query = _coloured(point, square, side, single, trial.key, queries).reshape(trial.x.shape)
    return BestState(trial, query, queries, queries >= budget - 1, now.point, now.loss)


def _coloured(values: Tensor, square: Tensor, side: Tensor, single: Tensor, key: Tensor, queries: Tensor) -> Tensor:
    """`[B, V, h, w]` the values, with one random colour in the square.

    A square of one pixel always gets a new colour; where `single`, one of its values is flipped.
    """
    count = values.shape[1]
    bits = (noise.uniform(key, queries * _DRAWS + 2, (count,)) >= 0.5).unsqueeze(-1).unsqueeze(-1)
    one = (noise.uniform(key, queries * _DRAWS + 3, ()).double() * count).long()
    turned = (torch.arange(count, device=key.device) == one.unsqueeze(1)).unsqueeze(-1).unsqueeze(-1)
    other = torch.where(along(single, bits), turned, torch.where(bits.any(1, keepdim=True), bits, turned))
    lone = torch.where(other, 1 - values, values)
    return torch.where(square, torch.where(along(side == 1, values), lone, bits.to(values)), values)


def _squares(like: Tensor, key: Tensor) -> Tensor:
    """`[B, V, t, w]` random squares in random colours, painted over each other until they cover nearly every pixel."""
    tall, wide = like.shape[-2:]
    widest = max(math.ceil(max(tall, wide) ** 0.5) - 1, 1)
    area = sum(side * side for side in range(1, widest + 1)) / widest
    cover = tall * wide / area
    count = min(math.ceil(cover * (math.log(max(tall * wide, 1)) + 2)), _MOST_SQUARES)
    shapes = noise.uniform(key, 1, (3, max(count, 1))).double()
    side = (shapes[:, 0] * widest).long() + 1
    edges = torch.tensor([tall, wide], device=key.device).reshape(1, 2, 1)
    corner = (shapes[:, 1:] * ((edges - side.unsqueeze(1)).clamp(min=0) + 1)).long()
    last = torch.full_like(like[:, :1], -1, dtype=torch.int64)
    for number in range(count):
        here = window(corner[:, 0, number], corner[:, 1, number], side[:, number], side[:, number], last)
        last = torch.where(here, number, last)
    colours = (noise.uniform(key, 2, (like.shape[1], max(count, 1))) >= 0.5).to(like)
    painted = colours.gather(2, last.clamp(min=0).flatten(1).unsqueeze(1).expand(-1, like.shape[1], -1))
    return painted.reshape(like.shape) * (last >= 0)


def _pasted(x: Tensor, patch: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """`[B, V, H, W]` images with each row's patch at its place."""
    (height, width), (tall, wide) = x.shape[-2:], patch.shape[-2:]
    if not tall * wide:
        return x
    below = (torch.arange(height, device=x.device) - row.unsqueeze(1)).clamp(0, tall - 1)
    right = (torch.arange(width, device=x.device) - column.unsqueeze(1)).clamp(0, wide - 1)
    number = (below.unsqueeze(2) * wide + right.unsqueeze(1)).flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    spread = patch.flatten(2).gather(2, number).reshape(x.shape)
    return torch.where(window(row, column, tall, wide, x), spread, x)


@cache
def _patch_schedule(budget: int, first_share: float, side: int) -> Schedule:
    shares = [
        first_share / 2 ** sum(query / budget * 10000 >= mark + 1 for mark in _HALVINGS) for query in range(budget)
    ]
    return _schedule([max(int(share**0.5 * side), 1) for share in shares])


@cache
def _frame_schedule(budget: int, first_share: float, width: int) -> Schedule:
    sizes = [((budget - query) / budget - 0.5) * first_share * width**2 for query in range(budget)]
    return _schedule([max(3 * math.ceil(size), 1) for size in sizes])


def _schedule(sides: list[int]) -> Schedule:
    """The schedule of given sides; single values change in the second half of the queries with squares of one pixel."""
    first = next((query for query, side in enumerate(sides) if side == 1), len(sides) - 1)
    start = first + (len(sides) - first) // 2
    single = [query >= start and side == 1 for query, side in enumerate(sides)]
    return Schedule(torch.tensor(sides, device="cpu"), torch.tensor(single, device="cpu"))
