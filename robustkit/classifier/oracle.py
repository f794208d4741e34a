"""What answers queries and passes verdicts: one oracle each for plain, randomized and smoothed models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from robustkit.classifier import rejection
from robustkit.classifier.batch_sizes import made_up
from robustkit.classifier.close_calls import is_sure
from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.primitives.losses import log_odds
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import Attack, FeatureAttack, MultiGradientAttack, Seen, State, in_package
from robustkit.statistics.randomized_smoothing import ABSTAINS
from robustkit.statistics.single_draw import FreshDraws

Objective = Callable[[Tensor, State], Tensor]  # of logits [B, K] and rows, [B]

_PROVEN = 2  # of several objectives: the backward passes of all use the same kernels, and the last one frees the graph


class OracleCost(NamedTuple):
    """Passes of one image."""

    query: int  # forwards for one query, and as many backwards for its gradient
    verdict: int  # forwards for one verdict; of a randomized model the fewest


class Look(NamedTuple):
    """Which of an image's verdicts one is: it names the noise of a randomized model, and divides the level of tests."""

    key: int  # of the trial's noise, or of the clean image's
    number: int = 0  # counts the points of the image that the attack had judged, from 1; 0 for the clean image
    most: int = 1  # how many points of the image the attack may have judged
    final: bool = True  # whether this verdict ends a trial, so that an uncertain point deserves all draws


class PointVerdicts(NamedTuple):
    """What an oracle says about points, row by row."""

    scores: Tensor  # [n, K] of the unmodified model: logits, or votes; [n, K + 1] with that of a rejection
    labels: Tensor  # [n] int64 the classes they speak for; -1 where a model abstains or rejects
    forwards: list[int]  # passes spent on each point
    rejects: bool = False  # whether the last score is that of a rejection

    @property
    def class_scores(self) -> Tensor:
        """`[n, K]` the scores of the classes alone."""
        return rejection.of_classes(self.scores) if self.rejects else self.scores


class Oracle(Protocol):
    """A model as attacks query it and as verdicts see it."""

    @property
    def cost(self) -> OracleCost:
        """What a query and a verdict cost."""

    def check(self, attack: Attack) -> None:
        """Check that the attack can query this oracle.

        Raises:
            UserError: it cannot.
        """

    def query(self, attack: Attack, state: State, *, most: int | None = None) -> Seen:
        """What `attack` may see of the search network at `state.query`, row by row; of gradients the `most` first."""

    def judge(self, points: Tensor) -> Tensor:
        """`[n, K]` scores of the unmodified model at points `[n, *S]` in [0, 1]: logits, or votes.

        Of a model that rejects `[n, K + 1]`.
        """

    def verdicts(self, points: Tensor, looks: Sequence[Look]) -> PointVerdicts:
        """What the unmodified model says at points `[n, *S]` in [0, 1], each with its look."""

    def confidences(self, scores: Tensor, labels: Sequence[int]) -> list[float] | None:
        """The probabilities of classes `labels`, by the scores `[n, K]`; None where scores do not say them."""

    def fresh_draws(self, points: Tensor, y: Sequence[int], looks: Sequence[Look]) -> list[FreshDraws] | None:
        """How often single answers at points `[n, *S]` are the classes `y`; None where every answer is the same."""

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """Whether a verdict holds in any batch size: `label` leads over `other` by more than rounding.

        Args:
            point: `[*S]` that was judged.
            scores: `[K]` of it, as `judge` gives them.
            label: its class.
            other: the likeliest class with which the verdict would be another one.
        """


@dataclass(frozen=True)
class Plain:
    """A model that answers the same query alike every time."""

    reference: Reference
    search: Search
    says_scores: bool = True  # False of a model that answers with labels only
    rejects: bool = False  # whether the last score is that of a rejection

    @property
    def cost(self) -> OracleCost:
        """One pass each."""
        return OracleCost(1, 1)

    def check(self, attack: Attack) -> None:
        """Every attack can."""

    def query(
        self,
        attack: Attack,
        state: State,
        objective: Objective | None = None,
        *,
        most: int | None = None,
    ) -> Seen:
        """In one batch, whose size is proven; `objective` of logits and rows replaces the attack's own where given."""
        sizes, device = self.reference.sizes, state.query.device
        everything = sizes.numbers(len(state), device)
        answer = partial(self.search.answer, attack, objective_of=objective)

        def ask(rows: Tensor) -> Seen:
            return answer(state if rows is everything else state.take(rows), most=most)

        def probe(numbers: Tensor) -> Seen:
            asks, asked_for = of_the_model_alone(attack, objective)
            return self.search.answer(
                asks, elsewhere(attack, state, numbers), label_of=as_they_are,
                most=_PROVEN if most is None else most, objective_of=asked_for,
            )  # fmt: skip

        return sizes.answer(ask, len(state), self.search.kind_of(attack, most), device, probe)

    def judge(self, points: Tensor) -> Tensor:
        """Logits, fp32 or float64."""
        return self.reference.logits(points)

    def verdicts(self, points: Tensor, looks: Sequence[Look]) -> PointVerdicts:
        """The class of the largest logit."""
        logits = self.judge(points)
        return PointVerdicts(logits, self.labels(logits), [1] * len(points), self.rejects)

    def labels(self, scores: Tensor) -> Tensor:
        """`[n]` int64 the classes of the largest scores; -1 where that is the rejection's."""
        return rejection.labels(scores) if self.rejects else scores.argmax(1)

    def confidences(self, scores: Tensor, labels: Sequence[int]) -> list[float] | None:
        """The softmax of the logits; None of a model that answers with labels only, or rejects."""
        if self.rejects or not self.says_scores:
            return None
        probabilities = scores if self.search.options.probabilities else scores.softmax(1)
        classes = torch.tensor(labels, device=scores.device).unsqueeze(1)
        found: list[float] = probabilities.gather(1, classes).squeeze(1).tolist()
        return found

    def fresh_draws(self, points: Tensor, y: Sequence[int], looks: Sequence[Look]) -> list[FreshDraws] | None:
        """None: a plain model draws nothing."""
        return None

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """A close call is queried again in batches of other sizes; a class must also lead over the rejection."""
        others = {other, ABSTAINS} - {label} if self.rejects else {other}  # ABSTAINS, -1, is the place of its score
        return all(is_sure(self.reference, point, scores, label, each) for each in others)


def of_the_model_alone(attack: Attack, objective: Objective | None = None) -> tuple[Attack, Objective | None]:
    """The attack and its objective with nothing of the user's own, which may read neighbours or draw random numbers.

    Args:
        attack: who asks.
        objective: what it maximizes in place of its own objective.
    """
    asks = attack.with_built_in_loss()
    several = isinstance(asks, (MultiGradientAttack, FeatureAttack, PerceptualAttack))
    methods = type(asks).objective, type(asks).objective_at
    if not several and not all(in_package(each) for each in methods):
        return asks, lambda logits, rows: log_odds(logits, rows.trial.y)
    replaced = asks is not attack and objective is not None
    return asks, (lambda logits, rows: asks.objective(logits, rows.trial)) if replaced else objective


def elsewhere(attack: Attack, state: State, numbers: Tensor) -> State:
    """`[n]` rows of a state that query made-up images of these numbers, every second one as in its second step."""
    rows = state.take(numbers % len(state))
    # Edits of gradients that depend on the step must keep to their rows.
    rows = replace(rows, queries=(numbers % 2).to(rows.queries))
    images = made_up(numbers, rows.trial.x)
    if not attack.ball.renders:
        return replace(rows, query=images)
    trial = replace(rows.trial, x=images)
    return replace(rows, trial=trial, query=attack.ball.random(images, numbers, 0))


def as_they_are(logits: Tensor) -> Tensor:
    """Logits in the place of labels, in which a difference of bits would hardly ever show."""
    return logits
