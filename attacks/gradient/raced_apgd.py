"""Raced APGD: a few steps of Auto-PGD towards each of several classes, then many towards the one that came nearest.

Ours: one round of successive halving (Jamieson & Talwalkar 2016) over the target classes of APGD-T (`apgd.py`). The
classes are the likeliest ones at the image. The class whose short search leaves the smallest lead wins; the long search
begins at the best point of that search, with half the first step size of APGD, so that it does not lose what was won.
On images of an undefended network that fall late, one race with `steps=100` breaks as many as nine targeted searches
of 100 steps each, in less than a third of their passes; see bench/README.md. There `long_below=0.25` loses no image,
and a robust image, of which short searches leave more than a quarter of the lead, then costs 24 queries.
Bad at: flat losses, on which few steps tell the classes apart by chance (take `soft_apgd`); L1, which it does not know.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit import limits
from robustkit.primitives import losses
from robustkit.primitives.ascent import Ascent, step_unit
from robustkit.primitives.protocol import ClasswiseAttack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along, surely_none

from .apgd import APGD, ApgdState


@dataclass(frozen=True)
class RaceState(ApgdState):
    """The state of one trial; `best` is the best point of the present search."""

    rivals: Tensor  # [B, C] int64 wrong classes in the order of their short searches
    clean_loss: Tensor  # [B] the loss of the first short search at the image
    ahead: Tensor  # [B] int64 class that a finished short search came nearest to; -1 before the first one
    ahead_point: Tensor  # [B, *S] the nearest point of that search
    ahead_loss: Tensor  # [B] the loss there


@dataclass(frozen=True)
class RacedAPGD(ClasswiseAttack, Ascent):
    """APGD towards one of several classes, which short searches choose, in Linf or L2.

    Args:
        steps: gradient steps of the long search.
        rivals: how many classes are tried: the likeliest wrong ones at the image.
        short: gradient steps towards each of them. The first short search begins at the image, the others at random.
        long_below: the long search is left out where the best short one leaves this share of the image's lead or more;
            1 leaves it out only where nothing was gained.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        rho: share of steps that must raise the loss for the step size to stay.
    """

    _: KW_ONLY
    steps: int = 40
    rivals: int = 4
    short: int = 6
    long_below: float = 1.0
    loss: str | losses.LossFunction = "margin"
    rho: float = 0.75

    norms = ("Linf", "L2")
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "rivals", "short")
        limits.require_at_most(f"{type(self).__name__}: rivals", self.rivals, limits.CLASSES)
        self.at_least(0.0, "rho", "long_below")

    @property
    def cost(self) -> TrialCost:
        queries = self._raced + self.steps
        return TrialCost(queries + 1, queries)

    @property
    def _tried(self) -> int:
        """How many short searches there are."""
        return min(self.rivals, max(self.classes - 1, 1)) if self.classes else self.rivals

    @property
    def _raced(self) -> int:
        """Queries of all short searches."""
        return self._tried * self.short

    @cached_property
    def _search(self) -> APGD:
        """Takes the steps of all searches; when they end is decided here."""
        return APGD(self.eps, self.norm, steps=self.steps, rho=self.rho)

    def init(self, trials: Trials) -> RaceState:
        begun = self._search.begin_at(trials, trials.x)
        nobody = torch.full_like(trials.y, -1)
        return RaceState(
            **vars(begun), rivals=nobody.unsqueeze(1).repeat(1, self._tried), clean_loss=begun.best_loss, ahead=nobody,
            ahead_point=trials.x, ahead_loss=torch.full_like(begun.best_loss, -torch.inf),
        )  # fmt: skip

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        assert isinstance(state, RaceState)
        return self.climbed(logits, state.trial.y, self._aim(self._rivals(logits, state), state))

    def step(self, state: State, seen: Seen) -> RaceState:
        assert isinstance(state, RaceState)
        rivals, queries = self._rivals(seen.logits, state), state.queries + 1
        long = state.queries >= self._raced
        since = torch.where(long, state.queries - self._raced, state.queries % self.short)
        moved = self._search.step(replace(state, queries=since), seen)
        assert isinstance(moved, ApgdState)
        ahead, ahead_point, ahead_loss = state.ahead, state.ahead_point, state.ahead_loss
        ended = ~long & (since == self.short - 1)
        if not surely_none(ended):  # saves time and changes no row's value
            nearer = ended & (moved.best_loss > ahead_loss)
            ahead = torch.where(nearer, self._aim(rivals, state), ahead)
            ahead_point = torch.where(along(nearer, moved.best), moved.best, ahead_point)
            ahead_loss = torch.where(nearer, moved.best_loss, ahead_loss)
            moved = self._next(state.trial, queries, ahead_point).where(ended, moved)
        clean_loss = torch.where(state.queries == 0, seen.loss, state.clean_loss)
        hopeless = (queries == self._raced) & (ahead_loss <= self.long_below * clean_loss)
        return RaceState(
            **(vars(moved) | {"queries": queries, "done": hopeless | (queries >= self._raced + self.steps)}),
            rivals=rivals, clean_loss=clean_loss, ahead=ahead, ahead_point=ahead_point, ahead_loss=ahead_loss,
        )  # fmt: skip

    def _next(self, trials: Trials, queries: Tensor, ahead_point: Tensor) -> ApgdState:
        """The next search: a short one from a random point, or after all of these the long one."""
        now_long = queries >= self._raced
        start = self._search.random_start(trials, queries // self.short)
        begun = self._search.begin_at(trials, torch.where(along(now_long, start), ahead_point, start))
        return replace(begun, step_size=torch.where(now_long, step_unit(self.ball), begun.step_size))

    def _rivals(self, logits: Tensor, state: RaceState) -> Tensor:
        """`[B, C]` the classes of the short searches, as the first query ranks them; a target alone if there is one."""
        first = state.queries == 0
        if surely_none(first):  # saves time and changes no row's value
            return state.rivals
        likeliest = losses.wrong_classes(logits, state.trial.y, self._tried)
        target = state.trial.loss_target.unsqueeze(1)
        return torch.where(first.unsqueeze(1), torch.where(target >= 0, target, likeliest), state.rivals)

    def _aim(self, rivals: Tensor, state: RaceState) -> Tensor:
        """`[B]` the class that the present search follows."""
        turn = state.queries // self.short
        short = rivals.gather(1, turn.clamp(max=self._tried - 1).unsqueeze(1)).squeeze(1)
        return torch.where(turn < self._tried, short, state.ahead)
