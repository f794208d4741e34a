"""The oracle of a smoothed model. An attack sees the mean probability over noisy copies, and its gradient.

Salman et al. 2019, arXiv:1906.04584, equation 7. The mean of the copies' own gradients would climb another function, in
which every copy counts the same; here those copies count most that are about to change their class. A point is judged
by the votes of further copies, whose noise no attack sees.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from robustkit.classifier import smoothing
from robustkit.classifier.answers import Forward, LabelOf
from robustkit.classifier.batch_layout import asked
from robustkit.classifier.oracle import (
    Look,
    Objective,
    OracleCost,
    PointVerdicts,
    as_they_are,
    elsewhere,
    of_the_model_alone,
)
from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.classifier.smoothing import Poll, Smoothing
from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.perceptual import require_no_features
from robustkit.primitives.protocol import Attack, FeatureAttack, Seen, State
from robustkit.primitives.rows import Rows
from robustkit.statistics.randomized_smoothing import ABSTAINS, predict
from robustkit.statistics.single_draw import FreshDraws

_STREAM = 3  # apart from the noise that an attack draws of its own


@dataclass(frozen=True)
class Smoothed:
    """The oracle of the class that a model predicts most often under Gaussian noise.

    Args:
        reference: the model.
        search: its search network.
        smoothing: the noise, and how sure a verdict has to be.
        eot: noisy copies per query.
        seed: of the verdicts' noise.
    """

    reference: Reference
    search: Search
    smoothing: Smoothing
    eot: int
    seed: int

    @property
    def cost(self) -> OracleCost:
        """One pass for each noisy copy."""
        return OracleCost(self.eot, self.smoothing.judges)

    def check(self, attack: Attack) -> None:
        """Attacks that read a layer cannot."""
        check_queryable(attack)

    def query(self, attack: Attack, state: State, *, most: int | None = None) -> Seen:
        """In tiles of as many rows as together have the usual number of copies."""
        sizes = self.reference.sizes
        everything = sizes.numbers(len(state), state.query.device)
        rows = max(1, sizes.at_once // self.eot)
        if not sizes.exact:
            return Rows.cat([self._answer(attack, state.take(part), most) for part in torch.split(everything, rows)])

        def probe(numbers: Tensor) -> Seen:
            asks, objective = of_the_model_alone(attack)
            return self._answer(asks, elsewhere(attack, state, numbers), most, as_they_are, objective)

        layout = sizes.layout(f"smoothed {rows} x {self.eot} {self.search.kind_of(attack, most)}", probe, rows)
        return asked(lambda batch: self._answer(attack, state.take(batch), most), everything, layout)

    def judge(self, points: Tensor) -> Tensor:
        """Votes of noisy copies."""
        logits, at_once = self.reference.logits, self.reference.sizes.at_once
        return smoothing.verdict_votes(logits, points, self.smoothing, self.seed, at_once).float()

    def decide(self, scores: Tensor, tests: int = 1) -> Tensor:
        """The class with significantly more votes than any other, -1 where there is none; `tests` share alpha."""
        return predict(scores, self.smoothing.alpha / tests)

    def verdicts(self, points: Tensor, looks: Sequence[Look]) -> PointVerdicts:
        """By the votes of noisy copies; all points of an image that an attack has judged share alpha."""
        scores = self.judge(points)
        labels = [self.decide(row[None], look.most) for row, look in zip(scores, looks, strict=True)]
        return PointVerdicts(scores, torch.cat(labels), [self.smoothing.judges] * len(points))

    def confidences(self, scores: Tensor, labels: Sequence[int]) -> list[float] | None:
        """None: the scores are votes."""
        return None

    def fresh_draws(self, points: Tensor, y: Sequence[int], looks: Sequence[Look]) -> list[FreshDraws] | None:
        """None: the smoothed model's answer is the class of most copies."""
        return None

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """Votes are not rounded."""
        return True

    def poll(self, images: Tensor, numbers: Sequence[int]) -> Poll:
        """The votes of noisy copies of clean images; `numbers` name the images, and with the seed fix their noise."""
        names = torch.tensor(list(numbers), device=images.device)
        return smoothing.poll(
            self.reference.logits, images, names, self.smoothing, self.seed, self.reference.sizes.at_once
        )

    def _answer(
        self,
        attack: Attack,
        state: State,
        most: int | None,
        label_of: LabelOf | None = None,
        objective: Objective | None = None,
    ) -> Seen:
        return self.search.answer(
            attack,
            state,
            forward_of=partial(_smoothed, state=state, sigma=self.smoothing.sigma, count=self.eot),
            rows=_repeated(state, self.eot),
            label_of=partial(leading, count=self.eot) if label_of is None else label_of,
            most=most,
            objective_of=objective,
        )


def check_queryable(attack: Attack) -> None:
    """Check that an attack can query a smoothed classifier.

    Raises:
        UserError: it reads a layer, or has a mask.
    """
    if attack.mask is not None:
        raise UserError("A smoothed classifier is attacked, and certified, on whole images; leave the mask out.")
    require_no_features(attack)
    if isinstance(attack, FeatureAttack):
        raise UserError(
            f"{type(attack).__name__} reads a layer, of which a smoothed classifier has one for each noisy copy; leave "
            "it out, or let it query a --surrogate."
        )


def leading(logits: Tensor, *, count: int) -> Tensor:
    """`[B]` the likeliest class, -1 where its lead is within one standard deviation of so many copies' votes.

    A verdict takes many more copies than a query, so a point is judged only where it has a fair chance to hold.
    """
    first, second = logits.exp().topk(2, 1).values.unbind(1)
    clear = (first - second) ** 2 * count >= first + second
    return torch.where(clear, logits.argmax(1), torch.full_like(clear, ABSTAINS, dtype=torch.int64))


def _smoothed(forward: Forward, *, state: State, sigma: float, count: int) -> Forward:
    """Logarithms of the smoothed classifier's probabilities `[B, K]` at queries `[B, *S]`, from `count` copies each.

    The noise is fresh at each query of each row of `state`.
    """
    keys = noise.keys(_STREAM, state.trial.key, state.queries).repeat_interleave(count)
    draws = torch.arange(count, device=keys.device).repeat(len(state))
    shift = sigma * noise.normal(keys, draws, state.trial.x.shape[1:]).to(state.query)

    def through_noise(query: Tensor) -> Tensor:
        logits = forward(query.repeat_interleave(count, 0) + shift)
        each = logits.log_softmax(1)
        return each.reshape(-1, count, each.shape[1]).logsumexp(1) - math.log(count)

    return through_noise


def _repeated(state: State, count: int) -> State:
    """Every row `count` times, in the order of the copies in a batch."""
    return state.take(torch.arange(len(state), device=state.query.device).repeat_interleave(count))
