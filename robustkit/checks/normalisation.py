"""Whether another preprocessing makes the model far better on clean images: then its own is missing, or applied twice.

Tried are the mean and standard deviation of the run's own images, pixels in [-1, 1], in 0 to 255, inverted, and in the
other order of channels.
"""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from robustkit.checks.check import Finding, Rule, not_run
from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.probing import CLEAN, ProbeBench, RunAttacks, Wanted
from robustkit.errors import UserError
from robustkit.primitives.protocol import TrialCost
from robustkit.statistics.paired import PairedCounts, mcnemar

_COUNT = 64
_FEWEST = 16
_GAIN = 0.2  # of the images
_LEVEL = 0.001
_PREFIX = "clean accuracy with "


def _normalised(x: Tensor) -> Tensor:
    axes = (0, *range(2, x.dim()))
    spread = x.std(dim=axes, keepdim=True).clamp(min=1e-6)
    return (x - x.mean(dim=axes, keepdim=True)) / spread


OTHERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "the mean and standard deviation of these images": _normalised,
    "pixels from -1 to 1": lambda x: 2 * x - 1,
    "pixels from 0 to 255": lambda x: 255 * x,
    "inverted pixels": lambda x: 1 - x,
    "the other order of channels": lambda x: x.flip(1),
}


def _probe(name: str, facts: ModelFacts) -> str:
    """With the number of images: a run that grew draws others, and their mean belongs to the result."""
    return f"{_PREFIX}{name}, {facts.n} images"


class PreprocessingProbe:
    """For each image and each other preprocessing, whether the model classifies it correctly."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        if facts.deterministic:
            for name in OTHERS:
                yield Wanted(CLEAN, _probe(name, facts), facts.drawn(facts.labels, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(1, 0)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        # All drawn images, also where some have their rows already: their mean belongs to the result.
        batch = bench.images(bench.facts.drawn(bench.facts.labels, _COUNT))
        (change,) = (OTHERS[name] for name in OTHERS if _probe(name, bench.facts) == wanted.probe)
        try:
            right = (bench.session.clean_verdicts(change(batch.x), batch.numbers).labels == batch.y).tolist()
        except UserError:
            right = [False] * len(batch.numbers)  # NaN or infinite logits, far outside of what it was made for
        for number, correct in zip(batch.numbers, right, strict=True):
            if number in wanted.images:
                yield bench.record(wanted, number, correct, forwards=1)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, about the preprocessing that helps most."""
    drawn = facts.drawn(facts.labels, _COUNT)
    if not facts.deterministic or len(drawn) < _FEWEST:
        yield Finding("", "not_applicable", f"This check needs at least {_FEWEST} images and a deterministic model.")
        return
    gains = []
    for name in OTHERS:
        rows = facts.probed(CLEAN, _probe(name, facts), drawn)
        if rows is None:
            yield not_run()
            return
        right = {row.sample for row in rows if row.outcome}
        gains.append((len(right) - len(facts.correct & set(drawn)), name, right))
    gain, name, right = max(gains, key=lambda each: each[0])
    own = facts.correct & set(drawn)
    p = mcnemar(PairedCounts(0, len(own - right), len(right - own), 0), first_is_lower=True)
    wrong = gain >= _GAIN * len(drawn) and p < _LEVEL
    text = (
        f"with {name} the model classifies {len(right)} of {len(drawn)} clean images correctly, without it {len(own)}."
    )
    usual = "No other preprocessing that was tried makes the model much better on clean images."
    numbers = {"correct": len(own), "correct_changed": len(right), "images": len(drawn)}
    images = tuple(sorted(right - own)) if wrong else ()
    yield Finding("", "failed" if wrong else "ok", text if wrong else usual, images, numbers)


RULE = Rule(
    name="normalisation",
    title="The preprocessing fits",
    level="standard",
    severity="invalidating",
    note="the preprocessing looks wrong",
    remedy="Put the normalisation inside the model: robustkit evaluate --mean --std, or Classifier(bounds=...).",
    judge=judge,
    probes=(PreprocessingProbe(),),
)
