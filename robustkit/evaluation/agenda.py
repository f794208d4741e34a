"""What is left to do in a run of several workers, and which part of it comes next.

The parts are *lanes*: images of one model, for one attack. An attack belongs to a *chain*: the attacks of one column in
one norm, each of which reads what those before it found. An image enters an attack once it has left those before it in
the chain. Chains do not wait for each other: while one ends with a few hard images, other workers have something to do.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from robustkit.evaluation.image_marks import Numbers
from robustkit.evaluation.image_queue import ImageQueue, image_numbers
from robustkit.evaluation.lanes import Lane
from robustkit.evaluation.plan import Plan
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.evidence.rows import FailedRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.progress import Silent

LEAST: Final = 32  # images in a lane: fewer fill no batch
_MOST: Final = 2048
_SHARES: Final = 2  # lanes that each worker gets of the images of a stage, where there is little else to do
_ENOUGH: Final = 3  # stages with images for each worker: then a lane has all images of one
_REST: Final = 8  # images that get no lane of their own: a CPU fills their batch with 16 rows (`BatchSizes`)
_PARTS: Final = 8  # into which the images of a lost worker are divided


class _Chain:
    """Images of one model on their way through some stages.

    Args:
        model: its number.
        stages: numbers of attacks in the plan; None stands for clean and corrupted images.
        before: the chain whose images come to this one.
    """

    def __init__(self, model: int, stages: Sequence[int | None], before: "_Chain | None" = None) -> None:
        self.model, self.stages, self.before = model, stages, before
        self.waiting = [ImageQueue() for _ in stages]
        self.out = [0] * len(stages)  # images that are handed out

    @property
    def inside(self) -> int:
        """How many images have not left it."""
        return sum(map(len, self.waiting)) + sum(self.out)

    def arriving(self, place: int) -> int:
        """How many images are on their way to a stage."""
        upstream = 0 if self.before is None else self.before.inside
        return upstream + sum(map(len, self.waiting[:place])) + sum(self.out[:place])


class _Choice(NamedTuple):
    """A stage with images that wait; the best is the smallest."""

    unripe: bool  # more images are on their way to it, and those that wait are not enough for a lane of each worker
    elsewhere: bool  # another model than the worker's last
    cheap: float  # minus the most passes of an image: what ends last is small, and clean images open the way
    few: int  # minus the number of images
    chain: int
    place: int


class Agenda:
    """Hands out lanes until every image is finished.

    Args:
        evaluation: the whole, without an audit.
        store: the evidence; while there is an agenda, rows are written through it.
    """

    def __init__(self, evaluation: Evaluation, store: Store) -> None:
        self.evaluation, self.store = evaluation, store
        self.runs = [ModelRun(evaluation, each, store, Silent()) for each in evaluation.classifiers]
        self._again: deque[Lane] = deque()  # of workers that were lost
        self._chains: list[_Chain] = []
        self._following = _chains(evaluation.plan)
        for model, run in enumerate(self.runs):
            clean = _Chain(model, [None])
            unjudged = image_numbers(run.unjudged)
            clean.waiting[0].extend(unjudged)
            self._chains += [clean, *(_Chain(model, stages, clean) for stages in self._following)]
            for attack in evaluation.plan.attacks:
                run.ledger.carry_over(attack)
            judged = image_numbers(evaluation.share)
            self._enter(model, judged[~np.isin(judged, unjudged)])

    @property
    def size(self) -> int:
        """How many images the run has, once for each chain of each model."""
        return len(self.runs) * len(self.evaluation.share) * (1 + len(self._following))

    @property
    def left(self) -> int:
        """How many images are unfinished, once for each chain of each model."""
        weights = {True: 1 + len(self._following), False: 1}
        return sum(chain.inside * weights[chain.before is None] for chain in self._chains)

    @property
    def standing(self) -> float:
        """The share of the judged images that are right so far and that no attack has broken, over all models."""
        judged = sum(run.ledger.clean_done for run in self.runs)
        return sum(run.ledger.standing for run in self.runs) / max(judged, 1)

    @property
    def lanes(self) -> int:
        """How many of the smallest lanes the images that wait fill."""
        return len(self._again) + sum(
            math.ceil(len(images) / LEAST) for chain in self._chains for images in chain.waiting
        )

    def take(self, workers: int, last: int | None) -> Lane | None:
        """The next lane for a worker, if there is any.

        Args:
            workers: how many there are in all.
            last: the model of this worker's last lane, which it has at hand.
        """
        if self._again:
            return self._again.popleft()
        choices = sorted(self._choices(workers, last))
        if not choices:
            return None
        best = choices[0]
        chain = self._chains[best.chain]
        waiting = chain.waiting[best.place]
        ripe = sum(not choice.unripe for choice in choices)
        whole = workers == 1 or ripe >= _ENOUGH * workers
        images = waiting.take(min(_share(len(waiting), 1 if whole else _SHARES * workers), _MOST))
        chain.out[best.place] += len(images)
        return Lane(chain.model, chain.stages[best.place], images)

    def known(self, lane: Lane) -> tuple[Row, ...]:
        """The rows that a lane's attack reads: those of the attacks before it in its chain, at its radius."""
        planned = self.evaluation.plan.attacks
        places = [] if lane.attack is None else [
            (each.threat.norm, each.threat.eps_text, each.name)
            for chain, place in self._at(lane)
            for each in (planned[number] for number in chain.stages[:place] if number is not None)
            if each.threat == planned[lane.attack].threat
        ]  # fmt: skip
        name = self.evaluation.classifiers[lane.model].name
        return tuple(self.store.about(name, lane.images, places))

    def done(self, lane: Lane) -> None:
        """All images of a lane are finished: they move on in its chain."""
        for chain, place in self._at(lane):
            chain.out[place] -= len(lane.images)
            if lane.attack is None:
                self._enter(lane.model, image_numbers(lane.images))
            else:
                self._carry_over(chain, place, lane.images)
                self._move(chain, place + 1, image_numbers(lane.images))

    def lost(self, lane: Lane, *, blamed: bool = True) -> Lane | None:
        """A lane's worker has ended: its unfinished images are handed out again; returned if it is one image alone.

        Args:
            lane: as it was handed out.
            blamed: whether an image that was alone may have ended the worker.
        """
        left = self._lacking(lane.model, lane.attack, image_numbers(lane.images)).tolist()
        unfinished = set(left)
        self.done(replace(lane, images=tuple(image for image in lane.images if image not in unfinished)))
        if len(left) == 1:
            return replace(lane, images=tuple(left), deaths=lane.deaths + (blamed and len(lane.images) == 1))
        self._again.extendleft(replace(lane, images=part) for part in _divided(left, math.ceil(len(left) / _PARTS)))
        return None

    def again(self, lane: Lane) -> None:
        """Hand a lane out once more, next."""
        self._again.appendleft(lane)

    def failed(self, lane: Lane, row: FailedRecord) -> None:
        """Nobody works on the one image of a lane any more."""
        self.write(lane.model, [row])
        for chain in self._chains:
            for images in chain.waiting if chain.model == lane.model else ():
                images.remove(row.sample)
        for chain, place in self._at(lane):
            chain.out[place] -= 1

    def write(self, model: int, rows: Sequence[Row]) -> None:
        """Commit rows about a model."""
        self.runs[model].ledger.write(rows)

    def _choices(self, workers: int, last: int | None) -> Iterator[_Choice]:
        for number, chain in enumerate(self._chains):
            for place, images in enumerate(chain.waiting):
                if images:
                    unripe = len(images) < LEAST * workers and chain.arriving(place) > 0
                    cheap = -self._passes(chain.stages[place])
                    yield _Choice(unripe, chain.model != last, cheap, -len(images), number, place)

    def _passes(self, attack: int | None) -> float:
        """The most passes of an image at a stage; infinite for clean images."""
        return math.inf if attack is None else self.evaluation.plan.attacks[attack].most_passes

    def _at(self, lane: Lane) -> Iterator[tuple[_Chain, int]]:
        for chain in self._chains:
            if chain.model == lane.model and lane.attack in chain.stages:
                yield chain, chain.stages.index(lane.attack)

    def _enter(self, model: int, images: Numbers) -> None:
        for chain in self._chains:
            if chain.model == model and chain.before is not None:
                self._move(chain, 0, images)

    def _move(self, chain: _Chain, place: int, images: Numbers) -> None:
        """Let each image wait for the first stage from `place` on that has to attack it."""
        for later in range(place, len(chain.stages)):
            wanted = self._lacking(chain.model, chain.stages[later], images)
            chain.waiting[later].extend(wanted)
            images = images[~np.isin(images, wanted)]

    def _lacking(self, model: int, attack: int | None, images: Numbers) -> Numbers:
        """Those of some images that are not finished at a stage."""
        if attack is not None:
            return self.runs[model].ledger.lacking(self.evaluation.plan.attacks[attack], images)
        now = ModelRun(self.evaluation, self.evaluation.classifiers[model], self.store, Silent())
        return images[np.isin(images, now.unjudged)]

    def _carry_over(self, chain: _Chain, place: int, images: Sequence[int]) -> None:
        """What an attack broke at one radius is broken at the larger ones, without another pass."""
        planned = self.evaluation.plan.attacks
        attack, *later = (planned[number] for number in chain.stages[place:] if number is not None)
        for each in later:
            if each.name == attack.name:
                self.runs[chain.model].ledger.carry_over(each, images)


def _chains(plan: Plan) -> list[list[int]]:
    """The numbers of a plan's attacks, by column and norm, in the order of work."""
    chains: dict[tuple[str, str], list[int]] = {}
    for number, attack in enumerate(plan.attacks):
        chains.setdefault((attack.column.name, attack.threat.norm), []).append(number)
    return list(chains.values())


def _share(images: int, lanes: int) -> int:
    """How many of some images the next lane gets, where all of them are to make so many lanes.

    The last hard images of a lane pay for a whole batch, so few large lanes cost less than many small ones.
    """
    size = max(math.ceil(images / lanes), LEAST)
    return size if images - size > _REST else images


def _divided(images: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    rest = iter(images)
    while part := tuple(islice(rest, max(size, 1))):
        yield part
