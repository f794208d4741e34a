"""Images with masks of their own, attacked in one batch.

Each mask has a scheduler, because its trials have a number of values of their own. The schedulers share the slots, and
the model is asked about the rows of all of them at once (`robustkit.engine.pooled_query`). Outcomes and counts are
those of one mask after the other.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

import torch

from robustkit.classifier.session import Session
from robustkit.engine.jobs import Outcome
from robustkit.engine.pooled_query import BatchOfQueries, MaskQueries, answered_together
from robustkit.engine.slots import Slots
from robustkit.primitives.protocol import Attack, Seen


class MaskScheduler(Protocol):
    """What a pool needs of the `Scheduler` of one mask."""

    attack: Attack
    queried: Session
    slots: Slots
    most: int

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""

    def admit(self) -> bool:
        """Give every free slot a trial if there is one."""

    def asked(self) -> BatchOfQueries | None:
        """The next queries; None without a trial in flight."""

    def answer(self, query: BatchOfQueries, seen: Seen) -> None:
        """The attack's steps after the model's answer."""

    def verdicts(self) -> Iterator[Outcome]:
        """Outcomes of the images that are decided."""

    def pause_all(self) -> None:
        """Queue all trials in flight, which go on from their states."""


def run_pooled(schedulers: Iterator[MaskScheduler], slots: int, tick: Callable[[int], None]) -> Iterator[Outcome]:
    """Yield the outcomes of all schedulers, each of which has one mask and is made when there is room for its rows.

    Args:
        schedulers: made with `pooled=True`.
        slots: rows in flight, of all masks together.
        tick: called with the number of trials in flight after each query.
    """
    active: list[MaskScheduler] = []
    while True:
        live = sum(len(each.slots.live) for each in active)
        while live < slots and (new := next(schedulers, None)) is not None:
            slots = min(slots, new.most)
            live += _admitted(new, slots - live)
            active.append(new)
        for each in active:
            live += _admitted(each, slots - live)
        if not active:
            return
        asked = [(each, query) for each in active if (query := each.asked()) is not None]
        answers: list[Seen] | None = None
        with suppress(torch.OutOfMemoryError):  # what was computed is freed only after the block
            answers = _answers(asked, slots)
        if answers is None:
            for each in active:
                each.pause_all()
            slots = active[0].queried.sizes.halved(slots, active[0].attack.sees)
        for (each, query), seen in zip(asked, answers or [], strict=False):
            each.answer(query, seen)
        for each in active:
            yield from each.verdicts()
        active = [each for each in active if not each.over]
        tick(live if answers else 0)


def _admitted(scheduler: MaskScheduler, free: int) -> int:
    """Give a scheduler at most `free` more slots; how many it takes."""
    before = len(scheduler.slots.live)
    scheduler.most = before + free
    if scheduler.most:
        scheduler.admit()
    return len(scheduler.slots.live) - before


def _answers(asked: list[tuple[MaskScheduler, BatchOfQueries]], slots: int) -> list[Seen]:
    if not asked:
        return []
    parts = [MaskQueries(each.attack, query.state, query.rows) for each, query in asked]
    return answered_together(asked[0][0].queried, parts, slots)
