"""Adversarial examples that something else made: each is moved into the ball and judged, as any attack's last point.

An image gets the examples whose clean image is its own: equal up to a thousandth of a level of 8 bits.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin

# Neither whole levels nor halves of them, which images have, lie near a border between two rounded values.
_OFFSET = 0.31
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GivenExamples:
    """Adversarial examples with their clean images, before a norm and a radius are chosen.

    Args:
        name: what results call them.
        x: `[n, *S]` float32 clean images in [0, 1], on the CPU; one may be there several times.
        x_adv: `[n, *S]` their adversarial examples.
        images: how many images are attacked, once that is known.
        missing: how many of these have no example.
    """

    name: str
    x: Tensor
    x_adv: Tensor
    images: int = 0
    missing: int = 0

    def among(self, parts: Iterable[Tensor]) -> "GivenExamples":
        """The same, with the count of images that have none.

        Args:
            parts: the images that are attacked, some `[B, *S]` in [0, 1] at a time.

        Raises:
            UserError: no image has an example.
        """
        images = known = 0
        for part in parts:
            images += len(part)
            known += sum(name in self.rows for name in _names(part))
        if not known:
            raise UserError(
                f"None of the {images} images has an example in {self.name}: its clean images x are others; store the "
                "images as they are evaluated, in [0, 1] and in the same size."
            )
        return replace(self, images=images, missing=images - known)

    def within(self, eps: float | str, norm: str) -> "JudgedExamples":
        """The attack that judges them in one ball.

        Raises:
            UserError: the radius is the minimum, or the norm is none of Linf, L2, L1 and L0.
        """
        return JudgedExamples(eps, norm, restarts=self.most, sha256=self.sha256, given=self)

    @cached_property
    def sha256(self) -> str:
        """Of the values, so that a run goes on with the same examples only."""
        digest = hashlib.sha256(repr(list(self.x.shape)).encode())
        for values in (self.x, self.x_adv):
            digest.update(values.contiguous().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def rows(self) -> Mapping[bytes, list[int]]:
        """The examples of each clean image, by what tells images apart."""
        found: dict[bytes, list[int]] = {}
        for row, name in enumerate(_names(self.x)):
            found.setdefault(name, []).append(row)
        return found

    @cached_property
    def most(self) -> int:
        """The largest number of examples of one image."""
        return max(map(len, self.rows.values()))

    def of(self, images: Tensor, number: Tensor) -> Tensor:
        """`[B, *S]` the example of this `number` `[B]` of each image; the image itself where there is none."""
        points = images.clone()
        for row, (name, which) in enumerate(zip(_names(images), number.tolist(), strict=True)):
            own = self.rows.get(name, [])
            if which < len(own):
                points[row] = self.x_adv[own[which]].reshape(points[row].shape)
        return points


@dataclass(frozen=True)
class JudgedExamples(Attack):
    """Given examples in one ball: one that lies outside is moved to a point inside that is near it.

    Args:
        sha256: of the examples.
        given: the examples.
    """

    _: KW_ONLY
    sha256: str
    given: GivenExamples = field(repr=False, compare=False)

    sees = "labels"
    norms = NORMS
    made_elsewhere = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unlimited:
            raise UserError(f"The examples {self.given.name} need a radius; give one with eps, not the minimum.")
        if self.mask is not None:
            raise UserError(f"The examples {self.given.name} change the whole image; leave the mask out.")

    def among(self, parts: Iterable[Tensor]) -> Self:
        """The same for some images, as in `GivenExamples.among`."""
        return replace(self, given=self.given.among(parts))

    @property
    def cost(self) -> TrialCost:
        return TrialCost(2, 0)

    @property
    def faults(self) -> tuple[str, ...]:
        name, sentences = self.given.name, []
        if self.outside:
            sentences.append(
                f"{self.outside} of the {len(self.given.x)} examples in {name} lie outside of {self.norm} {self.eps}; "
                "each was moved into the ball before it was judged."
            )
        if self.given.missing:
            sentences.append(
                f"{self.given.missing} of the {self.given.images} images have no example in {name}, and count as not "
                "broken by it."
            )
        return tuple(sentences)

    @cached_property
    def outside(self) -> int:
        """How many examples lie outside of the ball around their image, by more than rounding."""
        parts = zip(torch.split(self.given.x, _AT_ONCE), torch.split(self.given.x_adv, _AT_ONCE), strict=True)
        return sum(int((~self.ball.contains(*part)).sum()) for part in parts)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))

    def init(self, trials: Trials) -> State:
        points = self.given.of(trials.x.cpu(), trials.restart.cpu())
        return begin(trials, self.ball.project(trials.x, points.to(trials.x)))

    def step(self, state: State, seen: Seen) -> State:
        return replace(state, queries=state.queries + 1, done=torch.ones_like(state.done))


def _names(images: Tensor) -> list[bytes]:
    """What tells images apart, also after they were read, scaled and rounded in another way."""
    levels = (images.double() * 255 + _OFFSET).round().to(torch.int16)
    return [hashlib.sha256(each.tobytes()).digest() for each in levels.cpu().numpy()]
