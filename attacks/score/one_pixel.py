"""One-pixel attack: differential evolution of the places and colours of a few pixels.

Su, Vargas & Sakurai 2019, arXiv:1710.08864: a child is one member of the population plus half the difference of two
others, and replaces its parent if it is at least as good. Ours differs: it replaces the parent at once, as in scipy,
instead of after the whole generation; the population is 100 instead of 400; the fitness is the margin instead of a
probability.
Bad at: more than a few pixels, and budgets of only a few generations: Sparse-RS breaks more.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.ball import finer
from robustkit.primitives.best import begin_best, best
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack
from robustkit.primitives.rows import along

from .._planes import plane

_MOST = 300  # largest radius, because the state contains the whole population
_PARENTS = 3


@dataclass(frozen=True)
class EvolutionState(BestState):
    """The state of one trial; a member has P pixels, each with two coordinates in [0, 1] and C values."""

    members: Tensor  # [B, M, P, 2 + C] the population
    fitness: Tensor  # [B, M] the objective of each member
    child: Tensor  # [B, P, 2 + C] the member that the query shows


@dataclass(frozen=True)
class OnePixel(ScoreAttack):
    """One-pixel attack in L0; the radius counts values, so that one pixel of a colour image takes three.

    Args:
        queries: forward passes per trial, at least 2.
        population: number of members, at least 4; the first queries are these members, drawn at random.
        differential: factor of the difference of two members.
    """

    _: KW_ONLY
    population: int = 100
    differential: float = 0.5

    norms = ("L0",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1 + _PARENTS, "population")
        self.at_least(0.0, "differential")
        if self.ball.eps > _MOST:
            raise UserError(f"OnePixel changes at most {_MOST} values, not {self.eps}; for more take sparse_rs.")

    def init(self, trials: Trials) -> EvolutionState:
        x = plane(trials.x)
        pixels = max(int(self.ball.eps) // x.shape[1], 1)
        child = self._random_member(trials, torch.zeros_like(trials.y), pixels, x.shape[1])
        members = x.new_zeros(len(x), self.population, pixels, 2 + x.shape[1])
        fitness = torch.full_like(members[:, :, 0, 0], -torch.inf)
        start = begin_best(trials, self._drawn(trials, child))
        return EvolutionState(**vars(start), members=members, fitness=fitness, child=child)

    def step(self, state: State, seen: Seen) -> EvolutionState:
        assert isinstance(state, EvolutionState)
        now = best(state, seen)
        place = torch.arange(self.population, device=seen.loss.device) == (state.queries % self.population).unsqueeze(1)
        # An empty place has a fitness of minus infinity, so that the first members always fill it.
        better = place & (seen.loss.unsqueeze(1) >= state.fitness)
        members = torch.where(better[:, :, None, None], state.child.unsqueeze(1), state.members)
        fitness = torch.where(better, seen.loss.unsqueeze(1), state.fitness)
        queries = state.queries + 1
        random_member = self._random_member(state.trial, queries, *self._sizes(members))
        born = self._born(state.trial.key, queries, members)
        child = torch.where(along(queries < self.population, random_member), random_member, born)
        return EvolutionState(
            state.trial, self._drawn(state.trial, child), queries, queries >= self.queries - 1, now.point, now.loss,
            members, fitness, child,
        )  # fmt: skip

    def _sizes(self, members: Tensor) -> tuple[int, int]:
        """Pixels of a member, and channels."""
        return members.shape[2], members.shape[3] - 2

    def _random_member(self, trials: Trials, draw: Tensor, pixels: int, channels: int) -> Tensor:
        """`[B, P, 2 + C]` a random member: uniform places and, as in the paper, normally distributed values."""
        places = noise.uniform(trials.key, draw, (pixels, 2))
        values = 0.5 + 0.5 * noise.normal(finer(trials.key), draw, (pixels, channels))
        return torch.cat([places, values.clamp(0, 1)], 2).to(trials.x)

    def _born(self, key: Tensor, draw: Tensor, members: Tensor) -> Tensor:
        """`[B, P, 2 + C]` the child of three members, none of which is the parent that it may replace."""
        lots = noise.uniform(key, draw, (self.population,))
        own = torch.arange(self.population, device=key.device) == (draw % self.population).unsqueeze(1)
        chosen = lots.masked_fill(own, -1).topk(_PARENTS, 1).indices
        rows = torch.arange(len(members), device=key.device).unsqueeze(1)
        first, second, third = members[rows, chosen].unbind(1)
        return (first + self.differential * (second - third)).clamp(0, 1)

    def _drawn(self, trials: Trials, child: Tensor) -> Tensor:
        """`[B, *S]` the image with the pixels of a member; of two pixels at the same place the last one counts."""
        x = plane(trials.x)
        height, width = x.shape[2:]
        row = (child[:, :, 0] * height).long().clamp(max=height - 1)
        column = (child[:, :, 1] * width).long().clamp(max=width - 1)
        point, places = x.flatten(2), row * width + column
        for pixel in range(child.shape[1]):
            here = places[:, pixel].reshape(-1, 1, 1).expand(-1, x.shape[1], 1)
            point = point.scatter(2, here, child[:, pixel, 2:].unsqueeze(2))
        return self.ball.project(trials.x, point.reshape(trials.x.shape))
