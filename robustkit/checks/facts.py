"""What checks may read about one model: the rows of a run's evidence and of the checks' own passes, as plain values."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.primitives import noise
from robustkit.primitives.ball import NORMS
from robustkit.primitives.given_examples import names_of_examples
from robustkit.primitives.threat import is_minimum, radius_under

_STREAM = 0x43484B53  # keeps the choice of images apart from the noise of attacks, and from audits


class NearRow(Protocol):
    """What a gradient predicted for one image, as `robustkit.evidence.store.NearnessRecord` has it."""

    @property
    def norm(self) -> str: ...
    @property
    def eps_text(self) -> str: ...
    @property
    def attack(self) -> str: ...
    @property
    def sample(self) -> int: ...
    @property
    def predicted(self) -> float: ...
    @property
    def obtained(self) -> float: ...
    @property
    def unseen(self) -> float: ...
    @property
    def clean_step(self) -> float: ...
    @property
    def clean_way(self) -> float: ...
    @property
    def clean_unseen(self) -> float: ...
    @property
    def random_error(self) -> float: ...
    @property
    def random_bend(self) -> float: ...


@dataclass(frozen=True)
class ProbeRecord:
    """One pass or attack of a check on one image."""

    model: str
    norm: str  # "-" with eps_text "0" for what is about clean images
    eps_text: str
    probe: str  # what was done, with its settings
    sample: int
    outcome: int  # 1 where the probe found what it looks for
    value: float
    forwards: int
    backwards: int


class RunThreat(NamedTuple):
    """A threat of the run."""

    norm: str
    eps_text: str

    @property
    def text(self) -> str:
        """As reports write it."""
        return f"{self.norm} {self.eps_text}"

    @property
    def eps(self) -> float:
        """The radius as a number."""
        return radius_under(self.norm, self.eps_text)


class FreshAnswers(NamedTuple):
    """Answers of a randomized model at the last point of an attack, which neither the attack nor the verdict used."""

    right: int
    draws: int


Level = Literal["none", "quick", "standard", "full"]
AttackRows = Mapping[tuple[str, str, str], AttackColumns]  # by norm, eps_text and attack
ProbeRows = Mapping[tuple[str, str, str], Mapping[int, ProbeRecord]]  # by norm, eps_text and probe; then by image


@dataclass(frozen=True)
class StoredWitness:
    """A stored adversarial example, with its clean image."""

    norm: str
    eps_text: str
    attack: str
    sample: int
    model: str  # that it was made for
    broken: bool
    x: NDArray[np.floating[Any]]  # [C, H, W] in [0, 1]
    x_adv: NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ModelFacts:
    """Everything that the checks of one model may read."""

    model: str
    level: Level
    seed: int
    n: int  # images of the run that have a clean prediction
    classes: int  # 0 if unknown
    labels: Mapping[int, int]  # by image
    correct: AbstractSet[int]
    places: tuple[RunThreat, ...]
    attacked: AttackRows
    attacks: tuple[Mapping[str, Any], ...]  # name and hyper-parameters
    nearness: tuple[NearRow, ...] = ()
    probes: ProbeRows = field(default_factory=dict)
    logits: tuple[NDArray[np.float32], ...] = ()  # [n, K] at clean images, in each shape that the evidence allows
    says_probabilities: bool = False  # whether the user says that it returns them
    rejects: bool = False  # whether the last of the logits is that of a rejection
    replaced: tuple[str, ...] = ()  # the layers whose gradient BPDA replaces
    straight_through: bool = False  # whether the attacks follow gradients through operations that pass none on
    gradient_stops: tuple[str, ...] = ()  # operations of its forward that pass no gradient on, with their lines
    gradients_followed: bool = False  # whether an attack of the run takes backward passes
    randomized: bool = False
    smoothed: bool = False
    answers_only: bool = False  # whether it gives no gradients
    transferred: bool = False  # whether the attacks queried surrogates
    witnesses: tuple[StoredWitness, ...] = ()  # of all models of the run
    # By norm, eps_text and attack, then by image; of a randomized model alone.
    fresh: Mapping[tuple[str, str, str], Mapping[int, FreshAnswers]] = field(default_factory=dict)

    @property
    def deterministic(self) -> bool:
        """Whether one query has one answer, so that single passes say something."""
        return not (self.randomized or self.smoothed)

    @cached_property
    def searchable(self) -> tuple[RunThreat, ...]:
        """The threats that the checks' own attacks know: Linf, L2 and L1, the whole image, with a radius."""
        return tuple(
            place for place in self.places
            if place.norm in NORMS and place.norm != "L0" and not is_minimum(place.eps_text)
        )  # fmt: skip

    @cached_property
    def differentiable(self) -> tuple[RunThreat, ...]:
        """Those of them at which a gradient of one pass says something."""
        return self.searchable if self.deterministic and not self.answers_only else ()

    @cached_property
    def radii(self) -> tuple[RunThreat, ...]:
        """The threats that have a radius."""
        return tuple(place for place in self.places if not is_minimum(place.eps_text))

    def measures(self, place: RunThreat) -> bool:
        """Whether an attack of the run measures gradients at one threat, which only works on deterministic models."""
        return self.deterministic and any(place.norm in entry.get("measures", {}) for entry in self.attacks)

    @cached_property
    def examples(self) -> frozenset[str]:
        """The names of given examples, which stand among the attacks."""
        return names_of_examples(self.attacks)

    def under(self, place: RunThreat) -> dict[str, AttackColumns]:
        """The rows of each attack at one threat."""
        return {name: rows for (norm, eps_text, name), rows in self.attacked.items() if (norm, eps_text) == place}

    def searching_under(self, place: RunThreat) -> dict[str, AttackColumns]:
        """Those of attacks that searched: how many given examples break says nothing about a search."""
        return {name: rows for name, rows in self.under(place).items() if name not in self.examples}

    def survivors(self, place: RunThreat) -> ImageSet:
        """The images that no attack of the run broke."""
        if place not in self._survivors:
            broken = ImageSet.union(rows.broken for rows in self.under(place).values())
            self._survivors[place] = ImageSet(self.correct) - broken
        return self._survivors[place]

    @cached_property
    def _survivors(self) -> dict[RunThreat, ImageSet]:
        return {}

    def drawn(self, images: Iterable[int], count: int) -> tuple[int, ...]:
        """At most `count` of some images, chosen by the seed and the number of each image alone; ascending."""
        return tuple(sorted(noise.choose(self.seed, _STREAM, images, count)))

    def probed(self, place: RunThreat, probe: str, images: Iterable[int]) -> list[ProbeRecord] | None:
        """The rows of a probe on some images; None if one is missing."""
        rows = self.probes.get((*place, probe), {})
        wanted = list(images)
        return [rows[number] for number in wanted] if all(number in rows for number in wanted) else None
