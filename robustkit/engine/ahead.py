"""Queries ahead of their turn: rows of a batch that would be idle hold the queries that probably come next.

As language-model servers verify drafts: an attack guesses its states after answers that it has not got, and all their
queries are answered in one batch. An answer counts only if the query of the trial's true state is the guessed one, so
outcomes and counts are those of one query after the other. Measured on a CPU: Square with 1,000 queries on five images
takes a third of the time.
"""

from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.engine.own_attacks import guessed, stepped
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.rows import Rows, padded

# Batches grow beyond the idle rows where nearly all guesses come true: on a large network a row costs its full time.
_GROW, _SHRINK = 0.9, 0.8


class GuessedBatch(NamedTuple):
    """A batch of queries and of guesses which follow."""

    state: State  # [B] the true states of `live` trials, their guessed states after one answer, after two, and so on
    live: int
    depth: int  # states of each trial; the rows after them only fill the batch


class CountedAnswers(NamedTuple):
    """What counts of a batch, for each of the `n` trials that were in flight."""

    answers: list[list[int]]  # of each trial: the rows of the batch with its queries, one after the other
    after: State  # [n] the states after them


class QueriesAhead:
    """Fills batches with guessed queries.

    Args:
        attack: which guesses.
        sizes: of the batches.
    """

    def __init__(self, attack: Attack, sizes: BatchSizes) -> None:
        self.attack, self.sizes = attack, sizes
        self._worthwhile = 0  # rows that a batch may have, even if it would do with fewer

    def batch(self, state: State, live: Tensor, most: int) -> GuessedBatch | None:
        """The rows `live` of `state` and their guesses, at most `most` rows or as many as `state` has.

        None where there is no room for a guess.
        """
        self._worthwhile = min(self._worthwhile, most)
        count, device = len(live), state.query.device
        depth = max(self._worthwhile, len(state)) // count
        if depth == 1:
            self._learn(count, count)
            return None
        true, numbers = state.take(live), self.sizes.numbers(count, device)
        steps = torch.arange(1, depth, device=device).repeat_interleave(count)
        rows = Rows.cat([true, guessed(self.attack, true.take(numbers.repeat(depth - 1)), steps)])
        size = self.sizes.fit(len(rows), max(most, len(state)), self.attack.sees)
        return GuessedBatch(rows.take(padded(self.sizes.numbers(len(rows), device), size)), count, depth)

    def counted(self, batch: GuessedBatch, seen: Seen, ends: Tensor) -> CountedAnswers:
        """Each trial's answers, as long as its true state is the guessed one.

        Args:
            batch: was answered.
            seen: the answers.
            ends: `[B]` bool, answers after which a trial leaves, so that no later one counts.
        """
        state, live, depth = batch
        numbers = self.sizes.numbers(len(state), state.query.device)
        # One step in all rows: it is a true one where the state before it is.
        after = stepped(self.attack, state, seen)
        goes_on = _equal(after.take(numbers[: (depth - 1) * live]), state.take(numbers[live : depth * live]))
        goes_on &= ~(ends | after.done)[: len(goes_on)]
        counts = goes_on.reshape(depth - 1, live).cumprod(0).sum(0) + 1
        last = (counts - 1) * live + numbers[:live]
        self._learn(int(counts.sum()), depth * live)
        answers = [[step * live + trial for step in range(count)] for trial, count in enumerate(counts.tolist())]
        return CountedAnswers(answers, after.take(last))

    def _learn(self, right: int, answers: int) -> None:
        """How many answers of a batch counted decides how large the next one may be."""
        if right >= _GROW * answers:
            self._worthwhile = 2 * max(self._worthwhile, answers)
        elif right < _SHRINK * answers:
            self._worthwhile //= 2


def _equal(one: Rows, other: Rows) -> Tensor:
    """`[B]` bool, whether two structs have the same values in a row."""
    pairs = [(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)]  # type: ignore[arg-type]
    same = [
        _equal(mine, theirs) if isinstance(mine, Rows) else (mine == theirs).reshape(len(mine), -1).all(1)
        for mine, theirs in pairs
    ]
    return torch.stack(same).all(0)
