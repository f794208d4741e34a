"""A randomized model, queried so that its answers repeat, whatever the batch, the order and the moment.

Such a model draws from global generators, so the noise of one image depends on all queries before it. Here each image
is sent alone, in a batch of its own draws, after the generators were seeded with a number that belongs to the image.
Expectation over transformations: Athalye et al. 2018, arXiv:1802.00420, section 4.2.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from robustkit.classifier.oracle import OracleCost
from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.rows import Rows

_REPEATS = 4  # answers compared to see whether a model is randomized
_TOLERANCE = 1e-4  # of the range of the logits: a larger difference between two answers is not rounding


@dataclass(frozen=True)
class Randomized:
    """The oracle of a model that draws random numbers at every query.

    Args:
        reference: the model.
        search: its search network.
        eot: draws per query; an attack sees their mean.
        draws: draws per verdict, which is their plurality.
        seed: of the verdicts' draws.
    """

    reference: Reference
    search: Search
    eot: int
    draws: int
    seed: int

    @property
    def cost(self) -> OracleCost:
        """One pass for each draw."""
        return OracleCost(self.eot, self.draws)

    def check(self, attack: Attack) -> None:
        """Every attack can."""

    def query(self, attack: Attack, state: State) -> Seen:
        """The mean over the draws of each row; the label by vote."""
        rows = []
        for row, seed in enumerate(seeds(state.trial.key, state.queries)):
            reseed(seed)
            copies = torch.full((self.eot,), row, device=state.query.device)
            parts = torch.split(copies, self.reference.sizes.tile)
            rows.append(_mean(Rows.cat([self.search.answer(attack, state.take(part)) for part in parts])))
        return Rows.cat(rows)

    def judge(self, points: Tensor) -> Tensor:
        """Votes of the draws, the same draws for every point: a verdict depends on the point alone."""
        return torch.stack([self._votes(point) for point in points])

    def decide(self, scores: Tensor, tests: int = 1) -> Tensor:
        """The class with most votes."""
        return scores.argmax(1)

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """Votes are not rounded."""
        return True

    def _votes(self, point: Tensor) -> Tensor:
        reseed(self.seed)
        copies = point.unsqueeze(0).expand(self.draws, *point.shape)
        parts = torch.split(copies, self.reference.sizes.tile)
        return votes_of(torch.cat([self.reference.forward(part) for part in parts]))


def seeds(key: Tensor, queries: Tensor) -> list[int]:
    """One seed per row, from the row's noise stream and the number of its query."""
    numbers: list[int] = (noise.keys(1, key, queries) & ((1 << 62) - 1)).tolist()
    return numbers


def reseed(seed: int) -> None:
    """Seed all global generators that a model may draw from; `isolation.untouched` restores them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # models draw from numpy's global generator, if from any


def votes_of(logits: Tensor) -> Tensor:
    """`[K]` scores of one image's draws `[R, K]`: votes for each class plus, below one, its mean probability.

    So the largest score is the plurality, and of two classes with equal votes the more probable one wins.
    """
    votes = torch.zeros_like(logits[0]).index_add(0, logits.argmax(1), torch.ones_like(logits[:, 0]))
    return votes + logits.softmax(1).mean(0) * 0.999


def is_randomized(ask: Callable[[], Tensor], seed: int) -> bool:
    """Whether the same query is answered differently after different seeds."""
    reseed(seed)
    first = ask()
    scale = max(float(first.max() - first.min()), 1e-6)
    for other in range(seed + 1, seed + _REPEATS):
        reseed(other)
        if bool((ask() - first).abs().max() > _TOLERANCE * scale):
            return True
    return False


def _mean(draws: Seen) -> Seen:
    """One row out of the answers to all draws of an image."""
    label = votes_of(draws.logits).argmax() if draws.logits.shape[1] else draws.label.mode().values
    values = {each.name: getattr(draws, each.name) for each in fields(draws)}
    means = {name: value.mean(0, keepdim=True) for name, value in values.items() if value.is_floating_point()}
    return replace(draws, label=label.reshape(1), **means)
