from dataclasses import replace

import pytest
import torch
from robustkit.attacks import Square
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.early import EarlyTrials
from robustkit.engine.jobs import Outcome
from robustkit.engine.scheduler import run
from robustkit.primitives.protocol import State
from tests.problems import Problem, jobs_of, problem, same

SQUARE = Square(0.004, queries=40)


def ran(made: Problem, attack: Square, slots: int = 32, first: int = 0) -> tuple[list[Outcome], int]:
    """The outcomes by image, and how many batches there were."""
    batches: list[int] = []
    with Classifier(made.model).session(made.x) as session:
        ended = list(run(session, attack, jobs_of(made)[first:], slots=slots, tick=batches.append))
    return sorted(ended, key=lambda outcome: outcome.sample), len(batches)


def wrong(self: Square, state: State, steps: Tensor) -> State:
    return replace(state, query=state.query.flip(-1))


def partly_wrong(self: Square, state: State, steps: Tensor) -> State:
    guessed = GUESS(self, state, steps)
    return guessed.take(torch.arange(len(state)).clamp(max=1))


GUESS = Square.guess


@pytest.mark.parametrize(
    ("norm", "first"),
    [("Linf", 0), ("L2", 11), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("L2", 9), ("L1", 10)))],
)
def test_queries_ahead_change_neither_outcomes_nor_counts(monkeypatch, norm, first):
    made = problem("cnn", 1, 8, 8, count=12)
    attack = Square({"Linf": 0.002, "L2": 0.01, "L1": 0.05}[norm], norm, queries=40, restarts=2)
    ahead, fewer = ran(made, attack, first=first)
    monkeypatch.setattr(Square, "guesses", False)
    monkeypatch.setattr(EarlyTrials, "begin", lambda *_: [])
    one_by_one, more = ran(made, attack, first=first)

    assert all(same(*pair) for pair in zip(ahead, one_by_one, strict=True))
    assert fewer < 0.8 * more


@pytest.mark.parametrize("guess", [wrong, partly_wrong])
def test_wrong_guesses_change_nothing(monkeypatch, guess):
    made = problem("cnn", 1, 8, 8, count=5)
    right, _ = ran(made, SQUARE)
    monkeypatch.setattr(Square, "guess", guess)
    ended, _ = ran(made, SQUARE)

    assert all(same(*pair) for pair in zip(ended, right, strict=True))


def test_outcomes_do_not_depend_on_the_number_of_slots():
    made = problem("cnn", 1, 8, 8, count=7)
    many, _ = ran(made, SQUARE, slots=64)
    few, _ = ran(made, SQUARE, slots=3)

    assert all(same(*pair) for pair in zip(many, few, strict=True))
