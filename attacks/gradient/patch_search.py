"""Patch search: tries a square patch at the places that the gradient ranks first, then ascends inside the best one.

Wu, Tong & Vorobeychik 2020, arXiv:1909.09552, rank places by their gradient and try the best ones with a
grey patch. Ours differs: all places are ranked by the largest rise of the loss that the gradient predicts for values in
[0, 1]; each is tried with the content for which it predicts that rise; the places that are tried lie apart from each
other; the ascent has momentum and steps that shrink. On a linear classifier, with a loss that is linear in the logits,
the first try is the exact optimum over all places and contents.
Bad at: networks whose gradient at the image does not predict the effect of large changes; sparse_rs needs no gradient.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ascent import Ascent
from robustkit.primitives.best import begin_best, best
from robustkit.primitives.local_balls import Patch, Place, Sides
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.rounding import wide
from robustkit.primitives.rows import along
from robustkit.primitives.windows import pixels, window, window_sums

from ._momentum import normalised


@dataclass(frozen=True)
class PatchSearchState(BestState):
    """The state of one trial, which tries P of the R x Q places."""

    # set once
    corners: Tensor  # [B, *S] each value is 0 or 1, as the sign of its gradient says: the content that is tried
    # changes while places are tried
    worth: Tensor  # [B, R, Q] float64 rank of each place: its predicted gain, less 1 for each tried place near it
    rows: Tensor  # [B, P] int64 upper edges of the places that were tried
    columns: Tensor  # [B, P] int64 left edges of the places that were tried
    losses: Tensor  # [B, P] the losses there
    # changes at every step
    row: Tensor  # [B] int64 upper edge of the query's patch
    column: Tensor  # [B] int64 its left edge
    velocity: Tensor  # [B, *S] decayed sum of normalised gradients


@dataclass(frozen=True)
class PatchSearch(Ascent):
    """Search for the place and the content of a square patch.

    Args:
        steps: gradient steps per trial; at most half of them try places.
        places: how many places are tried. The first restart ascends at the best of them, the next one at the second
            best, and so on; after the last place, restarts begin with random content.
        step_size: length of the first step of the ascent, for values in [0, 1]; it falls to zero along a cosine.
        decay: factor of the velocity at each step.
        loss: "log-odds", "ce", "margin", "dlr", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    steps: int = 100
    places: int = 50
    step_size: float = 0.5
    decay: float = 0.75

    norms = ("patch",)
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "places")
        self.at_least(0.0, "step_size", "decay")

    def init(self, trials: Trials) -> PatchSearchState:
        x, zero = trials.x, torch.zeros_like(trials.y)
        tall, across = self._sides(x)
        worth = torch.zeros(len(x), x.shape[-2] - tall + 1, x.shape[-1] - across + 1, device=x.device)
        none = zero.unsqueeze(1).repeat(1, self._tried(worth))
        return PatchSearchState(
            **vars(begin_best(trials, x)), corners=x, worth=wide(worth), rows=none, columns=none,
            losses=torch.full_like(none, -torch.inf, dtype=x.dtype), row=zero, column=zero,
            velocity=torch.zeros_like(x),
        )  # fmt: skip

    def step(self, state: State, seen: Seen) -> PatchSearchState:
        assert isinstance(state, PatchSearchState)
        now = best(state, seen)
        state = self._with_loss(self._ranked(state, seen), seen)
        tried, queries = state.losses.shape[1], state.queries + 1
        tries, begins = queries <= tried, queries == tried + 1
        (next_row, next_column), worth = self._next_place(state.worth)
        row, column = self._best_place(state)
        row = torch.where(tries, next_row, torch.where(begins, row, state.row))
        column = torch.where(tries, next_column, torch.where(begins, column, state.column))
        velocity = self.decay * state.velocity + normalised(self._inside(seen.grad, 0 * seen.grad, row, column))
        velocity = velocity * along(~tries & ~begins, velocity)

        start = torch.where(along(tries, state.query), state.corners, self._start(state, tried))
        moved = (state.query + along(self._length(queries, tried), velocity).to(velocity) * velocity.sign()).clamp(0, 1)
        point = torch.where(along(tries | begins, moved), start, moved)
        return replace(
            state, query=self._inside(point, state.trial.x, row, column), queries=queries, done=queries >= self.steps,
            best=now.point, best_loss=now.loss, worth=torch.where(along(tries, worth), worth, state.worth),
            row=row, column=column, velocity=velocity,
        )  # fmt: skip

    def _ranked(self, state: PatchSearchState, seen: Seen) -> PatchSearchState:
        """The state after the query of the image: with each place's predicted gain, as a share of the largest one."""
        first = state.queries == 0
        if not bool(first.any()):  # saves time and changes no row's value
            return state
        x, grad = state.trial.x, seen.grad
        corners = torch.where(grad > 0, 1.0, torch.where(grad < 0, 0.0, x))
        gain = window_sums(pixels(wide(grad) * (wide(corners) - wide(x))), *self._sides(x))
        most = gain.flatten(1).amax(1).clamp(min=torch.finfo(gain.dtype).tiny)
        return replace(
            state, corners=torch.where(along(first, x), corners, state.corners),
            worth=torch.where(along(first, gain), gain / along(most, gain), state.worth),
        )  # fmt: skip

    def _with_loss(self, state: PatchSearchState, seen: Seen) -> PatchSearchState:
        """The state with the loss of the place that was tried."""
        number = torch.arange(state.losses.shape[1], device=state.losses.device)
        here = number == (state.queries - 1).unsqueeze(1)
        return replace(
            state, rows=torch.where(here, state.row.unsqueeze(1), state.rows),
            columns=torch.where(here, state.column.unsqueeze(1), state.columns),
            losses=torch.where(here, seen.loss.unsqueeze(1), state.losses),
        )  # fmt: skip

    def _next_place(self, worth: Tensor) -> tuple[Place, Tensor]:
        """The place of the largest worth, and the worth of all places once it has been tried."""
        most = worth.flatten(1).argmax(1)
        row, column = most // worth.shape[2], most % worth.shape[2]
        apart = max(int(self.ball.eps) // 2, 1)
        near = window(row - apart + 1, column - apart + 1, 2 * apart - 1, 2 * apart - 1, worth)
        return Place(row, column), torch.where(window(row, column, 1, 1, worth), -torch.inf, worth - wide(near))

    def _best_place(self, state: PatchSearchState) -> Place:
        """The place of the ascent: the best one that was tried; in later restarts the second best, and so on."""
        rank = (state.trial.restart % state.losses.shape[1]).unsqueeze(1)
        order = state.losses.argsort(dim=1, descending=True, stable=True).gather(1, rank)
        return Place(state.rows.gather(1, order).squeeze(1), state.columns.gather(1, order).squeeze(1))

    def _start(self, state: PatchSearchState, tried: int) -> Tensor:
        """The content with which the ascent begins: `corners`, or noise once restarts have used all places."""
        random = noise.uniform(state.trial.key, 0, state.query.shape[1:]).to(state.query)
        return torch.where(along(state.trial.restart < tried, random), state.corners, random)

    def _length(self, queries: Tensor, tried: int) -> Tensor:
        """`[B]` length of the step after `queries` queries: from `step_size` to nearly 0 along half a cosine."""
        share = (queries - tried - 2).double() / max(self.steps - tried - 1, 1)
        return self.step_size * (1 + (math.pi * share.clamp(0, 1)).cos()) / 2

    def _inside(self, point: Tensor, x: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return torch.where(window(row, column, *self._sides(x), x), point, x)

    def _sides(self, x: Tensor) -> Sides:
        assert isinstance(self.ball, Patch)
        return self.ball.sides(x)

    def _tried(self, worth: Tensor) -> int:
        """How many places are tried."""
        return max(min(self.places, self.steps // 2, worth[0].numel()), 1)
