"""Passes that a check makes itself, on some images: what is asked for, and how it is done.

Rows are committed as they finish, one per image, so a run that is killed goes on where it stopped. A row depends on the
image, the model and the seed alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.session import Session
from robustkit.primitives.protocol import Attack, TrialCost

CLEAN = RunThreat("-", "0")
REFUSED = -1.0  # value of a row where the model could not be asked: no gradient reaches the image, for example


class Wanted(NamedTuple):
    """The images on which a probe is needed at one threat."""

    place: RunThreat
    probe: str  # what is done, with its settings: other settings are another probe
    images: tuple[int, ...]


class ImageBatch(NamedTuple):
    """Some images of the run."""

    numbers: Sequence[int]
    x: Tensor  # [n, *S] in [0, 1], on the model's device
    y: Tensor  # [n] int64, on the CPU


RunAttacks = Callable[[RunThreat], Sequence[Attack]]  # of the run at one threat, apart from audits


@dataclass(frozen=True)
class ProbeBench:
    """What a probe works with."""

    facts: ModelFacts
    classifier: Classifier
    session: Session
    images: Callable[[Sequence[int]], ImageBatch]
    attacks: RunAttacks
    slots: int  # rows in flight; no row depends on it

    def record(
        self, wanted: Wanted, number: int, outcome: bool, value: float = 0.0, forwards: int = 0, backwards: int = 0
    ) -> ProbeRecord:
        """The row of one image."""
        return ProbeRecord(
            self.facts.model, *wanted.place, wanted.probe, number, int(outcome), value, forwards, backwards
        )


class CheckProbe(Protocol):
    """One kind of passes."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        """Where the passes are needed; empty where they say nothing."""

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        """The most passes of one image."""

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        """The rows of the images, as they finish."""
