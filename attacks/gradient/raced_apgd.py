"""Raced APGD: short searches of Auto-PGD towards several classes, of which each round keeps the nearer half.

Ours: successive halving (`_halving.py`) over the target classes of APGD-T (`apgd.py`). A few steps go towards each of
the likeliest classes, twice as many towards each of the nearer half, from its best point, and so on, until a long
search follows one class. Gradients are those of Soft APGD (`soft_apgd.py`), the softer the earlier the round.
What a round leaves of the true class's lead tells which images later rounds can break; with `pace` the others leave
the race, most of them after the first round. See bench/designs.md.
Bad at: errors that only a long search without a target finds (run `apgd-ce`, too); L1, which it does not know.
"""

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.nethook import soft_kinks
from robustkit.primitives import losses
from robustkit.primitives.ascent import Ascent, step_unit
from robustkit.primitives.protocol import ClasswiseAttack, HookedAttack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along, surely_none

from .._schedules import at, table
from ._halving import Timetable, Turn, rounds, timetable
from ._lead import allowed
from ._rivals import Rivals
from .apgd import APGD, ApgdState
from .soft_apgd import widths


@dataclass(frozen=True)
class RaceState(ApgdState):
    """The state of one trial; `best` is the best point of the present search."""

    rivals: Rivals


@dataclass(frozen=True)
class RacedAPGD(ClasswiseAttack, HookedAttack, Ascent):
    """APGD towards one of several classes, which rounds of short searches choose, in Linf or L2.

    Args:
        steps: gradient steps of the long search.
        rivals: how many classes are in the first round: the likeliest wrong ones at the image. A point is kept for
            each of them, so memory grows with them.
        short: gradient steps towards each of them, from a random point. Each round halves the classes and doubles the
            steps.
        pace: an image leaves the race where round n, counted from 1, leaves this share to the power of n, or more, of
            its lead over the nearest class. Then each fifth of the long search counts as a round, after the first.
            None lets every image stay to the end.
        widest: width of the smooth transition at a kink in the first round, as a share of the largest absolute value
            among the layer's inputs.
        narrowest: the same in the long search; each round multiplies the width by the same factor.
        pooling: temperature of the softmax that replaces max pooling in the backward pass, in units of these widths.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        rho: share of steps that must raise the loss for the step size to stay.
    """

    _: KW_ONLY
    steps: int = 40
    rivals: int = 4
    short: int = 4
    pace: float | None = None
    widest: float = 0.1
    narrowest: float = 0.003
    pooling: float = 0.2
    loss: str | losses.LossFunction = "margin"
    rho: float = 0.75

    norms = ("Linf", "L2")
    keeps_best = True
    names_layers = False
    reads_all_gradients = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "rivals", "short")
        limits.require_at_most(f"{type(self).__name__}: rivals", self.rivals, limits.CLASSES)
        together = sum(classes * steps for classes, steps in rounds(self.rivals, self.short, self.steps))
        limits.require_at_most(f"{type(self).__name__}: the steps of all searches together", together, limits.COUNT)
        self.at_least(0.0, "rho")
        self.at_least_or_none(0.0, "pace")
        self.positive("widest", "narrowest", "pooling")

    @property
    def cost(self) -> TrialCost:
        gradients = self._timetable.queries - 1
        return TrialCost(gradients + 2, gradients)

    @property
    def _entrants(self) -> int:
        """How many classes are in the first round."""
        return min(self.rivals, max(self.classes - 1, 1)) if self.classes else self.rivals

    @property
    def _timetable(self) -> Timetable:
        return timetable(self._entrants, self.short, self.steps)

    @cached_property
    def _search(self) -> APGD:
        """Takes the steps of all searches; when they end is decided here."""
        return APGD(self.eps, self.norm, steps=self.steps, rho=self.rho)

    def init(self, trials: Trials) -> RaceState:
        shape = (len(trials), self._entrants)
        points = trials.x.unsqueeze(1).repeat(1, self._entrants, *[1] * (trials.x.dim() - 1))
        begun = self._search.begin_at(trials, trials.x)
        zeros = begun.best_loss.new_zeros(shape)
        return RaceState(**vars(begun), rivals=Rivals(zeros.long(), zeros, zeros, points))

    def hooks(self, network: nn.Module, state: State) -> AbstractContextManager[None]:
        now = self._timetable.at(state.queries)
        width = at(now.round.clamp(min=0), widths(self.widest, self.narrowest, self._timetable.rounds), state.query)
        return soft_kinks(width, self.pooling * width)

    def gradients_read(self, state: State) -> Tensor:
        return (self._timetable.at(state.queries).round >= 0).long()

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        assert isinstance(state, RaceState)
        place = self._timetable.at(state.queries).place.unsqueeze(1)
        return self.climbed(logits, state.trial.y, self._classes(logits, state).gather(1, place).squeeze(1))

    def step(self, state: State, seen: Seen) -> RaceState:
        assert isinstance(state, RaceState)
        queries, now = state.queries + 1, self._timetable.at(state.queries)
        moved = self._search.step(replace(state, queries=now.since), seen)
        assert isinstance(moved, ApgdState)
        rivals, ended = self._rivals(seen.logits, state), now.ends_search > 0
        goes_on = queries < self._timetable.queries
        if not surely_none(ended):  # saves time and changes no row's value
            rivals = rivals.reached(ended & (now.round >= 0), now.place, moved.best, moved.best_loss)
            ranked = now.ends_round > 0
            rivals = rivals.nearest_first().where(ranked, rivals)
            moved = self._next(state.trial, self._timetable.at(queries), rivals).where(ended & goes_on, moved)
            if self.pace is not None:
                goes_on &= ~(ranked & self._too_far(self.pace, rivals, now.round + 1))
        if self.pace is not None:
            goes_on &= ~self._falls_behind(self.pace, rivals, moved, now)
        return RaceState(**(vars(moved) | {"queries": queries, "done": ~goes_on}), rivals=rivals)

    def _next(self, trials: Trials, then: Turn, rivals: Rivals) -> ApgdState:
        """The next search: from a random point in the first round, and from the best point later."""
        early, start = then.round == 0, rivals.point(then.place)
        if not surely_none(early):  # saves time and changes no row's value
            start = torch.where(along(early, start), self._search.random_start(trials, then.place), start)
        begun = self._search.begin_at(trials, start)
        return replace(begun, step_size=torch.where(early, begun.step_size, step_unit(self.ball)))

    def _too_far(self, pace: float, rivals: Rivals, ended: Tensor) -> Tensor:
        """`[B]` whether so many rounds left too much of the lead over the nearest class."""
        most = at(ended, _powers(pace, self._timetable.rounds), rivals.losses)
        return rivals.losses[:, 0] <= most * rivals.clean_losses[:, 0]

    def _falls_behind(self, pace: float, rivals: Rivals, moved: ApgdState, now: Turn) -> Tensor:
        """`[B]` whether so many fifths of the long search left too much of the lead over its class."""
        last = self._timetable.rounds - 1
        most = at(now.since, allowed(pace, self.steps, ended=last - 1), rivals.losses)
        return (now.round == last) & (moved.best_loss <= most * rivals.clean_losses[:, 0])

    def _classes(self, logits: Tensor, state: RaceState) -> Tensor:
        """`[B, C]` the classes in the race, as the first query ranks them; a target alone if there is one."""
        first = state.queries == 0
        if surely_none(first):  # saves time and changes no row's value
            return state.rivals.classes
        likeliest = losses.wrong_classes(logits, state.trial.y, self._entrants)
        target = state.trial.loss_target.unsqueeze(1)
        return torch.where(along(first, target), torch.where(target >= 0, target, likeliest), state.rivals.classes)

    def _rivals(self, logits: Tensor, state: RaceState) -> Rivals:
        """The rivals before this step: after the first query, at the image."""
        first = state.queries == 0
        if surely_none(first):  # saves time and changes no row's value
            return state.rivals
        classes = self._classes(logits, state)
        clean = torch.stack([self.climbed(logits, state.trial.y, each) for each in classes.unbind(1)], 1)
        return Rivals(classes, clean, clean, state.rivals.points).where(first, state.rivals)


@cache
def _powers(base: float, largest: int) -> Tensor:
    """`[largest + 1]` from the power of 0 on."""
    return table(base**power for power in range(largest + 1))
