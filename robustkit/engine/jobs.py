"""What the engine is given and what it returns: one job per image, one outcome per job, trials in between."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robustkit.engine.bisection import Bisection
from robustkit.engine.nearness import Nearness
from robustkit.engine.originals import Original
from robustkit.primitives.mask import Mask
from robustkit.primitives.protocol import Attack, Trials, cost_of
from robustkit.statistics.randomized_smoothing import ABSTAINS
from robustkit.statistics.single_draw import FreshDraws

_SLACK = 10  # queries beyond twice the declared cost, after which a trial is taken to have no end


@dataclass(frozen=True)
class Job:
    """One image to attack, however many trials that takes."""

    sample: int  # number of the image; with seed, restart and loss target it fixes all noise
    x: Tensor  # [*S] in [0, 1], on the model's device
    y: int
    loss_targets: tuple[int, ...] = (-1,)  # classes that the loss aims at, one trial each per restart; -1 for none
    target: int | None = None  # class that must be reached; None: any class but y
    original: Original | None = None  # that `x` is a scaled or rounded copy of; points are judged around it

    def lost(self, label: int) -> bool:
        """Whether the attack has succeeded when the model predicts `label`; abstention (-1) is no success."""
        return reached(label, self.y, self.target)


class Approach(NamedTuple):
    """How far away the nearest error of an image is after some queries, as the answers to them say."""

    queries: int  # over all trials of the image
    distance: float  # infinite before there is an error


@dataclass(frozen=True)
class Outcome:
    """The result of the attack on one image."""

    sample: int
    success: bool
    x: Tensor  # [*S] the clean image, on the CPU
    x_adv: Tensor  # [*S] the judged point, inside ball and box: the witness, or the last point tried; with an original
    # in its units and type
    label: int  # what the unmodified model predicts there, -1 where a model abstains or rejects
    queries: int  # of the deciding trial
    restart: int
    loss_target: int  # -1 for none
    forwards: int  # over all trials of the image, judging included
    backwards: int
    draws: FreshDraws | None = None  # single answers at `x_adv`, of a randomized model
    zero_backwards: int = 0  # backward passes of queries whose gradients were all exactly zero
    parameters: Tensor | None = None  # [*P] that `x_adv` was rendered with, where the threat renders; on the CPU
    nearness: Nearness | None = None  # of the best point, where it was asked for and the image is not broken
    all_queries: int = 0  # over all trials of the image, judging not included
    approach: tuple[Approach, ...] = ()  # without a radius, of an attack that sees no gradients
    confidence: float | None = None  # probability of `label` at `x_adv`; None of a smoothed or randomized model

    @property
    def blind(self) -> bool:
        """Whether the image stands and half of the attack's gradients or more were zero, so that it hardly moved."""
        return not self.success and 0 < self.backwards <= 2 * self.zero_backwards


@dataclass
class Trial:
    """The engine's notes on the trial of an image that is under way. Its tensors are rows of a `State`."""

    job: Job
    attack: Attack  # at the radius of this trial
    number: int = 0  # the trials of one image run one after the other; with bisection counted anew at each radius
    looks: int = 0  # points judged, over all trials of the image so far
    queries: int = 0  # likewise: points queried
    forwards: int = 0  # likewise
    backwards: int = 0
    zero_backwards: int = 0  # those of queries whose gradients were all exactly zero
    stretched: int = 0  # how often the nearest error was moved away from the image, because the model judged otherwise
    shortest: "Outcome | None" = None  # without a radius: the nearest error of the trials so far
    approach: list[Approach] = field(default_factory=list)  # of an attack that sees no gradients, without a radius
    bisection: Bisection | None = None
    early: bool = False  # whether the trials before it may still succeed (`robustkit.engine.early`)

    @property
    def restart(self) -> int:
        """Which of the restarts this is."""
        return self.number % self.attack.restarts

    @property
    def loss_target(self) -> int:
        """The class that the loss aims at, -1 for none."""
        return self.job.loss_targets[self.number // self.attack.restarts]

    @property
    def left(self) -> int:
        """How many trials of the image follow on this one, at this radius."""
        return self.attack.restarts * len(self.job.loss_targets) - self.number - 1

    @property
    def last(self) -> bool:
        """Whether no trial of the image is left after this one, at this radius."""
        return self.left == 0

    def following(self) -> "Trial":
        """The next trial of the image, with nothing counted yet."""
        return Trial(self.job, self.attack, self.number + 1)

    def count_in(self, before: "Trial") -> None:
        """Add what was counted over the trials before this one."""
        self.looks += before.looks
        self.queries += before.queries
        self.forwards += before.forwards
        self.backwards += before.backwards
        self.zero_backwards += before.zero_backwards

    def note(self, distance: float) -> None:
        """Note how far away the nearest error of this trial is after the queries so far."""
        before = self.approach[-1].distance if self.approach else math.inf
        self.approach.append(Approach(self.queries, min(distance, before)))


def by_mask(jobs: Sequence[Job], mask_of: Callable[[int], Mask]) -> Iterator[tuple[Mask, list[Job]]]:
    """The jobs of each mask; `mask_of` gives that of an image by its number."""
    own = [mask_of(job.sample) for job in jobs]
    for mask in dict.fromkeys(own):
        yield mask, [job for job, other in zip(jobs, own, strict=True) if other == mask]


def lost_rows(trials: Trials, label: Tensor) -> Tensor:
    """`[B]` bool: `Job.lost` of each trial for the class `label` `[B]`."""
    return torch.where(trials.target < 0, (label != trials.y) & (label != ABSTAINS), label == trials.target)


def by_attack(trials: Sequence[Trial]) -> list[tuple[Attack, list[int]]]:
    """The attacks of trials, each with their numbers in the list: one attack, unless radii differ."""
    groups: dict[int, tuple[Attack, list[int]]] = {}
    for number, trial in enumerate(trials):
        groups.setdefault(id(trial.attack), (trial.attack, []))[1].append(number)
    return list(groups.values())


def reached(label: int, y: int, target: int | None) -> bool:
    """Whether the class that a model predicts is what an attack wants: the target, or any but `y` without one."""
    return label not in (y, ABSTAINS) if target is None else label == target


def most_verdicts(attack: Attack) -> int:
    """How many points of one image an attack may have judged: one per query, and the last of each trial."""
    return attack.trials * cost_of(attack).forwards


def likeliest(logits: Tensor, y: int) -> list[int]:
    """All classes but `y`, the likeliest first; ties by number."""
    return [number for number in ranked(logits) if number != y]


def ranked(logits: Tensor) -> list[Any]:
    """The classes of logits `[K]`, or a list of them for each row of `[n, K]`, the likeliest first; ties by number."""
    order: list[Any] = logits.sort(dim=-1, descending=True, stable=True).indices.tolist()
    return order


def loss_targets_of(attack: Attack, ranking: Sequence[int]) -> tuple[int, ...]:
    """The classes that the attack's loss aims at, given the wrong classes of an image, likeliest first."""
    return tuple(ranking[: attack.targets]) or (-1,)


def most_queries(attack: Attack) -> int:
    """How many queries of an image, in all trials that aim at one class, are twice what the attack declares."""
    radii = attack.radii if attack.bisects else 1
    return 2 * attack.restarts * radii * cost_of(attack).forwards + _SLACK
