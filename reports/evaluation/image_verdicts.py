"""The verdicts of a board image by image, as arrays in one order for all models.

An image counts as robust at a radius if it is classified correctly and no attack broke it there or at a smaller radius
of the same norm: what lies in the smaller ball lies in the larger one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.image_set import ImageSet, different
from robustkit.evidence.parts import Part, broken_images, passes
from robustkit.evidence.sample_rows import SampleRows

from ..shared.words import printable
from .result_rows import ThreatLabel

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
_NONE: Final = np.empty(0, np.int64)


class ModelImages(NamedTuple):
    """The images of one model that have a verdict, by number."""

    sample: Numbers
    label: Numbers
    clean_pred: Numbers

    @property
    def correct(self) -> Flags:
        """Whether each is classified correctly without an attack."""
        return np.equal(self.label, self.clean_pred)


class AttackImages(NamedTuple):
    """What one attack did at one threat."""

    broken: Numbers  # the images that it broke, ascending
    spent: int  # images on which it spent passes
    most_backwards: int  # on one image


class ImageVerdicts:
    """Rows per image of all models, indexed once: a page looks them up many times.

    Args:
        samples: of all runs of a board, with the board's model names.
    """

    def __init__(self, samples: SampleRows) -> None:
        self._parts: dict[tuple[str, str, str], list[Part]] = {}
        for part in samples.parts:
            key = str(part["model"]), str(part["norm"]), str(part["eps_text"])
            self._parts.setdefault(key, []).append(part)
        self._images: dict[str, ModelImages] = {}
        self._robust: dict[tuple[str, ThreatLabel], Flags] = {}
        self._by_attack: dict[tuple[str, ThreatLabel], Mapping[str, AttackImages]] = {}

    def parts(self, model: str, threat: ThreatLabel) -> list[Part]:
        """The rows of one model at one threat, one part for each attack; empty if there are none."""
        return self._parts.get((model, threat.norm, threat.eps_text), [])

    def parts_within(self, model: str, threat: ThreatLabel) -> list[Part]:
        """The rows of one model at one threat and, after them, at the smaller radii of its norm, the largest first."""
        own = [
            part for (name, norm, _), parts in self._parts.items() if (name, norm) == (model, threat.norm)
            for part in parts if float(part["eps"]) <= threat.eps
        ]  # fmt: skip
        return sorted(own, key=lambda part: -float(part["eps"]))

    def images(self, model: str) -> ModelImages:
        """The images of one model."""
        if model not in self._images:
            own = _different([part for key, parts in self._parts.items() if key[0] == model for part in parts])
            columns = [np.concatenate([_NONE, *(part[name] for part in own)]) for name in ModelImages._fields]
            _, places = np.unique(columns[0], return_index=True)
            self._images[model] = ModelImages(*(column[places] for column in columns))
        return self._images[model]

    def robust(self, model: str, threat: ThreatLabel) -> Flags:
        """Whether each of the images withstood every attack; in the order of `images`."""
        key = model, threat
        if key not in self._robust:
            images = self.images(model)
            broken = distinct_images(map(broken_images, self.parts_within(model, threat)))
            self._robust[key] = images.correct & ~np.isin(images.sample, broken)
        return self._robust[key]

    def broken_anywhere(self, model: str) -> ImageSet:
        """The images that some attack broke at some radius."""
        own = (part for key, parts in self._parts.items() if key[0] == model for part in parts)
        return ImageSet(distinct_images(map(broken_images, own)))

    def spent(self, model: str, threat: ThreatLabel) -> Mapping[str, int]:
        """For each attack with rows on how many images it spent passes."""
        return {attack: own.spent for attack, own in self._attacks(model, threat).items()}

    def most_backwards(self, model: str, threat: ThreatLabel, attack: str) -> int:
        """The most backward passes that an attack spent on one image; 0 without rows."""
        own = self._attacks(model, threat).get(attack)
        return 0 if own is None else own.most_backwards

    def broken_by(self, model: str, threat: ThreatLabel) -> Mapping[str, Numbers]:
        """For each attack with rows the images that it broke."""
        return {attack: own.broken for attack, own in self._attacks(model, threat).items()}

    def _attacks(self, model: str, threat: ThreatLabel) -> Mapping[str, AttackImages]:
        """The rows of each attack, looked up once."""
        key = model, threat
        if key not in self._by_attack:
            parts: dict[str, list[Part]] = {}
            for part in self.parts(model, threat):
                parts.setdefault(printable(str(part["attack"])), []).append(part)
            self._by_attack[key] = {attack: _attack_images(own) for attack, own in parts.items()}
        return self._by_attack[key]


def distinct_images(several: Iterable[Numbers]) -> Numbers:
    """All images that occur, ascending."""
    arrays = {id(each): each for each in several}  # most attacks have the same ones
    return different(np.concatenate([_NONE, *arrays.values()]))


def _different(parts: Iterable[Part]) -> list[Part]:
    """Without parts about exactly the images of another one."""
    return list({tuple(id(part[name]) for name in ModelImages._fields): part for part in parts}.values())


def _attack_images(parts: Sequence[Part]) -> AttackImages:
    broken = distinct_images(map(broken_images, parts))
    spent = sum(int((passes(part, "forwards") > 0).sum()) for part in parts)
    most = max((int(passes(part, "backwards").max(initial=0)) for part in parts), default=0)
    return AttackImages(broken, spent, most)
