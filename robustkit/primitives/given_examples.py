"""Adversarial examples that something else made: each is moved into the ball and judged, as any attack's last point."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS
from robustkit.primitives.example_index import ExampleIndex
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along
from robustkit.primitives.threat import norm_name

_AT_ONCE = 64
_MOST = 10_000  # examples of one image


@dataclass(frozen=True, eq=False)
class GivenExamples:
    """Adversarial examples with their clean images, before a norm and a radius are chosen.

    Args:
        name: what results call them.
        x: `[n, *S]` float32 clean images in [0, 1], on the CPU; one may be there several times.
        x_adv: `[n, *S]` their adversarial examples.
        sha256: of all examples, so that a run goes on with these alone.
        rounded: whether the clean images were stored with fewer bits, so that the centre of the ball is not known.
        most: how many examples one image has at most, of those that are attacked.
        note: what is said about images that have none; empty if all have some.
    """

    name: str
    x: Tensor
    x_adv: Tensor
    sha256: str
    rounded: bool = False
    most: int = 1
    note: str = ""

    @cached_property
    def index(self) -> ExampleIndex:
        """Where the examples of an image are."""
        return ExampleIndex(self.x, self.x_adv)

    def __getstate__(self) -> dict[str, Any]:
        """Without the index, which is made again."""
        return {name: value for name, value in vars(self).items() if name != "index"}

    def counts(self, images: Tensor) -> list[int]:
        """How many examples each of some images `[B, *S]` has."""
        return [len(numbers) for numbers in self.index.numbers(images)]

    def among(self, counts: Sequence[int], note: str) -> "GivenExamples":
        """The same for the images that are attacked.

        Args:
            counts: how many examples each of them has.
            note: what is said if some have none.

        Raises:
            UserError: an image has too many.
        """
        most = max(counts, default=0)
        if most > _MOST:
            raise UserError(f"An image has {most:,} examples in {self.name}; give at most {_MOST:,} of each.")
        other = replace(self, most=max(most, 1), note="" if all(counts) else note)
        vars(other)["index"] = self.index  # which takes time to make
        return other

    def within(self, eps: float | str, norm: str) -> "JudgedExamples":
        """The attack that judges them in one ball.

        Raises:
            UserError: the radius is the minimum, or the norm is none of Linf, L2, L1 and L0.
        """
        if norm_name(norm) not in NORMS:
            raise UserError(f"The examples {self.name} are judged in {', '.join(NORMS)}, not under {norm}.")
        return JudgedExamples(eps, norm, sha256=self.sha256, given=self)


@dataclass(frozen=True)
class ExamplesState(State):
    """The state of a trial, which queries one example after the other."""

    numbers: Tensor  # [B, most] int64 of the image's examples, then -1


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

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.given.most + 1, 0)

    @property
    def faults(self) -> tuple[str, ...]:
        outside = (
            f"{self._outside} of the {len(self.given.x)} examples in {self.given.name} lie outside of {self.norm} "
            f"{self.eps}; each was moved into the ball before it was judged."
        )
        return tuple(filter(None, [outside if self._outside else "", self.given.note]))

    @cached_property
    def _outside(self) -> int:
        """How many examples lie outside of the ball around their image, by more than rounding."""
        if self.given.rounded:
            return 0
        parts = zip(torch.split(self.given.x, _AT_ONCE), torch.split(self.given.x_adv, _AT_ONCE), strict=True)
        return sum(int((~self.ball.contains(*part)).sum()) for part in parts)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))

    def init(self, trials: Trials) -> State:
        most = self.given.most
        rows = [(found + [-1] * most)[:most] for found in self.given.index.numbers(trials.x)]
        numbers = torch.tensor(rows, dtype=torch.int64, device=trials.y.device)
        return ExamplesState(**vars(begin(trials, self._point(trials, numbers[:, 0]))), numbers=numbers)

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, ExamplesState)
        queries = state.queries + 1
        done = queries >= (state.numbers >= 0).sum(1)
        following = state.numbers.gather(1, queries.clamp(max=state.numbers.shape[1] - 1).unsqueeze(1)).squeeze(1)
        query = torch.where(along(done, state.query), state.query, self._point(state.trial, following))
        return replace(state, query=query, queries=queries, done=done)

    def _point(self, trials: Trials, numbers: Tensor) -> Tensor:
        return self.ball.project(trials.x, self.given.index.examples(numbers, trials.x))


def names_of_examples(described: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The names of given examples among the attacks of a run, as its manifest describes them."""
    return frozenset(str(each["name"]) for each in described if each.get("attack") == JudgedExamples.__name__)
