"""What is left to do in a run of several workers, and which part of it comes next.

The parts are *lanes*: images of one model, for one attack. A worker is handed one lane after the other of the same
attack, so that its batch stays full until no image waits for the attack. An attack belongs to a *chain*: the attacks of
one column in one norm, each of which reads what those before it found. An image enters an attack once it has left those
before it in the chain. Chains do not wait for each other: while one ends with a few hard images, other workers have
something to do.
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

ENOUGH: Final = 32  # images that are worth the start of a worker
_LEAST: Final = 16  # images in a lane: a CPU fills the batch of fewer with 16 rows (`BatchSizes`)
_MOST: Final = 256  # they move on to the next attack together
_SHARES: Final = 4  # lanes that the images which wait would make for each worker: what ends last is small
_REST: Final = 8  # images that get no lane of their own,
_FEWEST: Final = 4  # and those that a worker is not handed further ones of, unless they are the last
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

    def at(self, place: int) -> int:
        """How many images wait for a stage or are handed out there."""
        return len(self.waiting[place]) + self.out[place]

    @property
    def inside(self) -> int:
        """How many images have not left it."""
        return sum(map(self.at, range(len(self.stages))))

    def arriving(self, place: int) -> int:
        """How many images are on their way to a stage."""
        upstream = 0 if self.before is None else self.before.inside
        return upstream + sum(map(self.at, range(place)))


class _Choice(NamedTuple):
    """A stage with images that wait; the best is the smallest."""

    unripe: bool  # more images are on their way to it
    joined: bool  # another worker attacks it, and each of them ends with a few hard images of its own
    model: int  # 0 the worker's last, 1 one that no worker has loaded, 2 another worker's
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
    def useful(self) -> int:
        """How many workers the images that wait are worth."""
        waiting = (len(images) for chain in self._chains for images in chain.waiting)
        return len(self._again) + sum(math.ceil(images / ENOUGH) for images in waiting)

    def take(self, workers: int, last: int | None) -> Lane | None:
        """The next lane for a worker, if there is any.

        Args:
            workers: how many there are in all.
            last: the model of this worker's last lane, which it has at hand.
        """
        if self._again:
            return self._again.popleft()
        choices = sorted(self._choices(last))
        if not choices:
            return None
        return self._lane(self._chains[choices[0].chain], choices[0].place, workers)

    def more(self, lane: Lane, workers: int) -> Lane | None:
        """More images for a worker that has some of a lane left, if any wait for the same attack."""
        if lane.alone:
            return None
        for chain, place in self._at(lane):
            if chain.waiting[place]:
                return self._lane(chain, place, workers, len(lane.images))
        return None

    def _lane(self, chain: _Chain, place: int, workers: int, held: int = 0) -> Lane | None:
        """A lane for a worker that has `held` images of the stage; None if it has its share of them."""
        waiting = chain.waiting[place]
        free = self._share(chain, place, workers) - held
        if held and free < min(len(waiting), _FEWEST):
            return None
        images = waiting.take(min(free, _size(len(waiting), _SHARES * workers)))
        chain.out[place] += len(images)
        return Lane(chain.model, chain.stages[place], images)

    def known(self, lane: Lane) -> tuple[Row, ...]:
        """What a lane reads: the rows of the attacks before its own in its chain, at its radius, and failed images."""
        planned = self.evaluation.plan.attacks
        places = [] if lane.attack is None else [
            (each.threat.norm, each.threat.eps_text, each.name)
            for chain, place in self._at(lane)
            for each in (planned[number] for number in chain.stages[:place] if number is not None)
            if each.threat == planned[lane.attack].threat
        ]  # fmt: skip
        name = self.evaluation.classifiers[lane.model].name
        # Its session is opened without images that ended other workers.
        return (*self.store.about(name, lane.images, places), *self.store.failed(name).values())

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
            lane: the images that the worker had.
            blamed: whether an image that was alone may have ended the worker.
        """
        left = self._lacking(lane.model, lane.attack, image_numbers(lane.images)).tolist()
        unfinished = set(left)
        self.done(replace(lane, images=tuple(image for image in lane.images if image not in unfinished)))
        if len(left) == 1:
            return replace(
                lane, images=tuple(left), alone=True, deaths=lane.deaths + (blamed and len(lane.images) == 1)
            )
        parts = _divided(left, math.ceil(len(left) / _PARTS))
        self._again.extendleft(replace(lane, images=part, alone=True) for part in parts)
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

    def _share(self, chain: _Chain, place: int, workers: int) -> int:
        """How many images of a stage a worker may have: all, unless the others will soon have nothing else to do.

        Images of other stages count in proportion to their most passes, but never more than an image of this stage:
        few images need the most.
        """
        images = chain.at(place)
        if chain.before is None:
            return images
        here = self._passes(chain.stages[place])
        elsewhere = sum(
            each.at(other) * min(1, self._passes(stage) / here)
            for each in self._chains
            for other, stage in enumerate(each.stages)
            if (each, other) != (chain, place)
        )
        return min(images, max(math.ceil((images + elsewhere) / workers), _LEAST))

    def _choices(self, last: int | None) -> Iterator[_Choice]:
        others = {chain.model for chain in self._chains if any(chain.out)}
        for number, chain in enumerate(self._chains):
            model = 0 if chain.model == last else 1 + (chain.model in others)
            for place, images in enumerate(chain.waiting):
                if images:
                    cheap = -self._passes(chain.stages[place])
                    unripe, joined = chain.arriving(place) > 0, chain.out[place] > 0
                    yield _Choice(unripe, joined, model, cheap, -len(images), number, place)

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


def _size(images: int, lanes: int) -> int:
    """How many of some images the next lane gets, where all of them would make so many lanes."""
    size = min(max(math.ceil(images / lanes), _LEAST), _MOST)
    return size if images - size > _REST else images


def _divided(images: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    rest = iter(images)
    while part := tuple(islice(rest, max(size, 1))):
        yield part
