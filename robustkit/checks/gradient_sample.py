"""Gradients at some survivors, measured where no attack of the run does it.

The ensemble `default` measures the gradients of a deterministic model itself. For attacks that a user names, and of
randomized models, some survivors are looked at: from the clean image the gradient is followed, a tenth of the way and
the whole way, values that have none are moved, and a small step is taken in a random direction. Of a randomized model
one draw is measured: the generators are set to the same seed before every query.

A gradient can be right and lead nowhere: it turns before a tenth of the way, and not along a much shorter step. So it
does behind fast waves, and on honest networks that are rough. Such survivors are attacked with APGD, whose steps adapt.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, get_args

import torch

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.fixed_randomness import FixedRandomness
from robustkit.checks.local_loss import LocalLoss
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.checks.survivors import searchable, survivors
from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins
from robustkit.engine.nearness import AtClean, at_clean
from robustkit.errors import UserError
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import TrialCost, Trials, begin
from robustkit.primitives.trust import Doubt, doubt

_STREAM = 0x53414D50
_PROBE = "gradients against steps"
_COUNT = 24  # survivors of each threat
_MEASURE = Measure(1, clean_gradient=True, random_step=True, shorter_step=True)
_COST = TrialCost(9, 3)  # one query with its gradient, four points, and two random steps
_APGD = "apgd:steps=40"
_ATTACK = AttackProbe({"quick": _APGD}, {"quick": _COUNT}, survivors, searchable)
_FEW = 12  # images of a randomized model that are attacked: each query takes many draws
# What a row keeps of an image: what speaks against its gradient; that its random step surprises, but bends; or that the
# gradient is right nearby and leads nowhere, with an outcome of 1 if APGD broke the image.
_VALUES: Final[dict[Doubt, float]] = {seen: float(number) for number, seen in enumerate(get_args(Doubt), 1)}
_SEEN: Final = {value: seen for seen, value in _VALUES.items()}
_CROOKED, _ROUGH = len(_VALUES) + 1.0, len(_VALUES) + 2.0


class SampledGradients(NamedTuple):
    """What was seen at the survivors that were drawn."""

    misled: tuple[int, ...]  # images at which the gradient is not to be believed
    why: tuple[Doubt, ...]  # what was seen there, the most frequent first
    rough: int  # images at which the gradient is right nearby, and leads nowhere
    broken: tuple[int, ...]  # of these, by APGD

    @classmethod
    def of(cls, rows: Sequence[ProbeRecord]) -> "SampledGradients":
        """From the rows of the probe."""
        why = {row.sample: _SEEN[row.value] for row in rows if row.outcome and row.value in _SEEN}
        why = without_crooked(why, sum(row.value == _CROOKED for row in rows))
        rough = [row for row in rows if row.value == _ROUGH]
        broken = tuple(sorted(row.sample for row in rough if row.outcome))
        return cls(tuple(sorted(why)), reasons(why), len(rough), broken)


def without_crooked(why: Mapping[int, Doubt], crooked: int) -> dict[int, Doubt]:
    """What speaks against each image's gradient, less random steps if no more of them go wrong than bend.

    Where most surprises are crooked, logits are rounded, or the step crosses many kinks. One image says nothing.
    """
    counts = sum(seen == "errs" for seen in why.values()) > max(1, crooked)
    return {sample: seen for sample, seen in why.items() if counts or seen != "errs"}


def reasons(why: Mapping[int, Doubt]) -> tuple[Doubt, ...]:
    """What speaks against the gradients of some images, the most frequent first."""
    return tuple(seen for seen, _ in Counter(why.values()).most_common())


class GradientSample:
    """For each survivor that is drawn, whether its gradient can be believed, and if not, why."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        # What BPDA or --straight-through replace is no derivative, and predicts less by design.
        replaced = facts.straight_through or facts.replaced
        if facts.smoothed or replaced or facts.answers_only or not facts.gradients_followed:
            return
        for place in searchable(facts):
            if place.eps > 0 and not facts.measures(place):
                yield Wanted(place, _PROBE, facts.drawn(facts.survivors(place), _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return _COST + _ATTACK.at_most(wanted._replace(probe=_APGD), attacks)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        rows = list(_measured(bench, wanted))
        rough = [row.sample for row in rows if row.value == _ROUGH]
        some = tuple(rough if bench.facts.deterministic else rough[:_FEW])
        attacked = wanted._replace(probe=_APGD, images=some)
        found = {each.sample: each for each in _ATTACK.run(bench, attacked)} if some else {}
        for row in rows:
            other = found.get(row.sample)
            yield row if other is None else replace(
                row, outcome=other.outcome, forwards=row.forwards + other.forwards,
                backwards=row.backwards + other.backwards,
            )  # fmt: skip


def _measured(bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
    trials = LocalLoss.around(bench, wanted, _STREAM).trials
    margins = Margins(wanted.place.eps_text, wanted.place.norm, measure=_MEASURE)
    with _answering_alike(bench, trials) as (session, together):
        rows = torch.arange(len(trials.x), device=trials.x.device)
        parts = map(trials.take, torch.split(rows, len(rows) if together else 1))
        found = (each for some in parts for each in at_clean(session, margins, begin(some, some.x)))
        # Images before rows: a lone image has a second row, which need not be asked.
        for number, near in zip(wanted.images, found, strict=False):
            value = _value(near)
            yield bench.record(wanted, number, value in _SEEN, value, near.cost.forwards, near.cost.backwards)


@contextmanager
def _answering_alike(bench: ProbeBench, trials: Trials) -> Iterator[tuple[Session, bool]]:
    """A session that answers the same query alike every time, and whether it takes many rows together."""
    if bench.facts.deterministic:
        yield bench.session, True
        return
    fixed = FixedRandomness(bench.classifier.model, bench.facts.seed).eval()
    alone = replace(bench.classifier, model=fixed, fold=False, channels_last=False)
    with alone.session(trials.x[:1], bench.facts.seed) as session:
        if session.repeatability.randomized:
            raise UserError("The randomness of this model cannot be fixed.")
        session.sizes.compact = True  # it answers row by row, so that a batch that is filled up only costs time
        yield session, False


def _value(near: AtClean) -> float:
    """What a row keeps; 0 where the gradient does what it says."""
    gradient = near.gradient._replace(step=1.0) if near.right_nearby else near.gradient
    # What the whole way gains beyond the prediction says little: at clean images many honest networks are flat.
    why = doubt(near.predicted, 0.0, 0.0, gradient)
    if why is not None:
        return _VALUES[why]
    if near.right_nearby:
        return _ROUGH
    return _CROOKED if gradient.random is not None and gradient.random.crooked else 0.0


PROBE = GradientSample()
