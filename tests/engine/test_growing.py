"""Rows in flight grow while there is memory for more, and outcomes do not depend on it."""

import torch
from robustkit.attacks import PGD

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.growth import Growth
from robustkit.classifier.oracle import Plain
from robustkit.engine.scheduler import run
from tests.problems import jobs_of, problem, same

ATTACK = PGD(0.03, steps=5, restarts=3)


class Memory:
    """Has room for some rows, one byte each."""

    def __init__(self, limit):
        self.rows, self.room = [], limit

    def peak(self):
        return self.rows[-1]

    def limit(self):
        return self.room


def outcomes(monkeypatch, memory, *, runs=1, fitting=10_000):
    """The outcomes of the last of some runs in one session, and the rows of its queries."""
    made, answered = problem("cnn", 1, 8, 8, count=150), Plain.query

    def query(self, attack, state, **given):
        memory.rows.append(len(state))
        if len(state) > fitting:
            raise torch.OutOfMemoryError("too many rows")
        return answered(self, attack, state, **given)

    monkeypatch.setattr(Plain, "query", query)
    with Classifier(made.model).session(made.x) as session:
        for _ in range(runs):
            memory.rows.clear()
            growth = None if memory.room is None else Growth(session.sizes, memory)
            ended = list(run(session, ATTACK, jobs_of(made), slots=16, growth=growth))
    monkeypatch.undo()
    return sorted(ended, key=lambda outcome: outcome.sample), memory.rows


def test_rows_double_until_twice_as_many_would_fill_the_memory(monkeypatch):
    fixed, few = outcomes(monkeypatch, Memory(None))
    grown, rows = outcomes(monkeypatch, Memory(100))

    assert all(same(*pair) for pair in zip(fixed, grown, strict=True))
    assert max(few) == 16
    assert max(rows) == 64  # twice as many would be 128 of 90


def test_the_next_attack_begins_with_the_rows_of_the_last(monkeypatch):
    _, rows = outcomes(monkeypatch, Memory(100), runs=2)

    assert rows[0] == 64


def test_rows_do_not_grow_again_after_an_out_of_memory(monkeypatch):
    fixed, _ = outcomes(monkeypatch, Memory(None))
    grown, rows = outcomes(monkeypatch, Memory(10_000), fitting=50)

    assert all(same(*pair) for pair in zip(fixed, grown, strict=True))
    assert [size for size in rows if size > 50] == [64]
