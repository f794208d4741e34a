"""A randomized model, queried so that its answers repeat, whatever the batch, the order and the moment.

Such a model draws from global generators, so the noise of one image depends on all queries before it. Here each image
is sent alone, in a batch of its own draws, after the generators were seeded with a number that belongs to the image.
An attack sees the mean over some draws (expectation over transformations: Athalye et al. 2018, arXiv:1802.00420,
section 4.2). A point is judged by draws of its own, which no attack has seen, more of them until a class is
significantly the most frequent one; so points that merely suit the draws of a query do not count as broken, and images
do not share their luck.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from torch import Tensor

from robustkit.classifier.generators import reseed
from robustkit.classifier.oracle import Look, OracleCost, PointVerdicts
from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.primitives import noise
from robustkit.primitives.perceptual import require_no_features
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.rows import Rows
from robustkit.statistics.randomized_smoothing import ABSTAINS, predict
from robustkit.statistics.repeated_tests import FIRST_STAGE, leads, spent, stages
from robustkit.statistics.single_draw import FreshDraws

ALPHA: Final = 0.001  # chance at most that the verdict on an image is wrong
# A run has several attacks and radii, and may get more of them, so each takes a hundredth of alpha: a hundred of them
# together keep to it. This costs seven draws where draws agree.
_SHARES = 100
FRESH: Final = 16  # draws in each half of `FreshDraws`
_SCORES = 64  # draws that rank the classes of an image

# Leads in standard deviations. Trials go on after a point that is not judged, or given up after the first draws, and
# their last points get all draws; so a point in between is worth them only where they will probably decide.
_WORTH_A_VERDICT, _WORTH_MORE_DRAWS = 1.0, 2.0

_QUERY, _VERDICT, _FRESH = 1, 2, 3  # streams of seeds that never meet


@dataclass(frozen=True)
class Randomized:
    """The oracle of a model that draws random numbers at every query.

    Args:
        reference: the model.
        search: its search network.
        eot: draws per query; an attack sees their mean.
        draws: the most draws of one verdict.
        seed: of the draws that rank classes.
        together: draws that may share a forward; 1 if all rows of a batch get the same random numbers.
    """

    reference: Reference
    search: Search
    eot: int
    draws: int
    seed: int
    together: int

    @property
    def cost(self) -> OracleCost:
        """One pass for each draw; verdicts that are not clear take more."""
        return OracleCost(self.eot, FIRST_STAGE)

    def check(self, attack: Attack) -> None:
        """Every attack can that compares no features."""
        require_no_features(attack)

    def query(self, attack: Attack, state: State, *, most: int | None = None) -> Seen:
        """The mean over the draws of each row; -1 for the label where the draws' votes are too close."""
        seeds = _seeds(_QUERY, state.trial.key, state.queries)
        answers: dict[int, Seen] = {}
        for row, seed in enumerate(seeds):
            if seed not in answers:  # idle slots repeat a trial, and a row costs many passes
                answers[seed] = self._answer(attack, state, row, seed, most)
        return Rows.cat([answers[seed] for seed in seeds])

    def _answer(self, attack: Attack, state: State, row: int, seed: int, most: int | None) -> Seen:
        reseed(seed)
        copies = torch.full((self.eot,), row, device=state.query.device)
        parts = torch.split(copies, self.together)
        return _mean(Rows.cat([self.search.answer(attack, state.take(part), most=most) for part in parts]))

    def judge(self, points: Tensor) -> Tensor:
        """Votes of a fixed number of draws, which rank the classes; no verdict follows from them."""
        return torch.stack([self._scores(point, self.seed) for point in points])

    def verdicts(self, points: Tensor, looks: Sequence[Look]) -> PointVerdicts:
        """The class that is significantly the most frequent one, -1 where there is none."""
        each = [
            self._verdict(point, look, seed)
            for point, look, seed in zip(points, looks, _seeds_of(_VERDICT, looks), strict=True)
        ]
        scores, labels, forwards = zip(*each, strict=True)
        return PointVerdicts(torch.stack(scores), torch.tensor(labels, device="cpu"), list(forwards))

    def confidences(self, scores: Tensor, labels: Sequence[int]) -> list[float] | None:
        """None: the scores are votes."""
        return None

    def fresh_draws(self, points: Tensor, y: Sequence[int], looks: Sequence[Look]) -> list[FreshDraws] | None:
        """Draws that no query and no verdict used."""
        found = []
        for point, label, seed in zip(points, y, _seeds_of(_FRESH, looks), strict=True):
            reseed(seed)
            right = (self._draw(point, 2 * FRESH).argmax(1) == label).reshape(2, FRESH).sum(1)
            found.append(FreshDraws(FRESH, *right.tolist()))
        return found

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """Votes are not rounded."""
        return True

    def _verdict(self, point: Tensor, look: Look, seed: int) -> tuple[Tensor, int, int]:
        """Scores, class and number of draws."""
        level = spent(ALPHA / _SHARES, look.number) if look.number else ALPHA
        ends = stages(self.draws)
        reseed(seed)
        logits: list[Tensor] = []
        drawn = 0
        for end in ends:
            logits, drawn = [*logits, self._draw(point, end - drawn)], end
            votes = votes_of(torch.cat(logits))
            if not bool(votes.isfinite().all()):
                return votes, ABSTAINS, drawn  # what calls this names the image
            label = int(predict(votes.unsqueeze(0), level / len(ends)))
            if label != ABSTAINS or not (look.final or leads(*_two_largest(votes), _WORTH_MORE_DRAWS)):
                break
        return votes, label, drawn

    def _scores(self, point: Tensor, seed: int) -> Tensor:
        reseed(seed)
        return votes_of(self._draw(point, _SCORES))

    def _draw(self, point: Tensor, count: int) -> Tensor:
        """`[count, K]` logits, from where the generators are.

        At least four forwards, in case that a rare event which all rows of a forward share has gone unnoticed.
        """
        copies = point.unsqueeze(0).expand(count, *point.shape)
        parts = torch.split(copies, min(self.together, max(1, count // 4)))
        return torch.cat([self.reference.forward(part) for part in parts])


def votes_of(logits: Tensor) -> Tensor:
    """`[K]` scores of one image's draws `[R, K]`: votes for each class plus, below one, its mean probability.

    So the largest score is the plurality, and of two classes with equal votes the more probable one comes first.
    """
    votes = torch.zeros_like(logits[0]).index_add(0, logits.argmax(1), torch.ones_like(logits[:, 0]))
    return votes + logits.softmax(1).mean(0) * 0.999


def _two_largest(votes: Tensor) -> tuple[int, int]:
    first, second = votes.topk(2).values.tolist()
    return int(first), int(second)


def _seeds(stream: int, key: Tensor, number: Tensor) -> list[int]:
    """One seed per row."""
    numbers: list[int] = (noise.keys(stream, key, number) & ((1 << 62) - 1)).tolist()
    return numbers


def _seeds_of(stream: int, looks: Sequence[Look]) -> list[int]:
    columns = [look.key for look in looks], [look.number for look in looks]
    return _seeds(stream, *(torch.tensor(column, dtype=torch.int64, device="cpu") for column in columns))


def _mean(draws: Seen) -> Seen:
    """One row out of the answers to all draws of an image."""
    values = {each.name: getattr(draws, each.name) for each in fields(draws)}
    means = {name: value.mean(0, keepdim=True) for name, value in values.items() if value.is_floating_point()}
    return replace(draws, label=torch.tensor([_leading(draws.label.tolist())], device=draws.label.device), **means)


def _leading(labels: list[int]) -> int:
    """The class of most draws, -1 where its lead is within one standard deviation and so not worth a verdict."""
    (label, first), *others = Counter(labels).most_common(2)
    return label if leads(first, others[0][1] if others else 0, _WORTH_A_VERDICT) else ABSTAINS
