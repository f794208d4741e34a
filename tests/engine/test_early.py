"""Trials that begin before their turn change neither outcomes nor counts."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from robustkit.attacks import APGD, FAB, PGD, SPSA, SoftAPGD
from torch import Tensor, nn

from robustkit.black_box import BlackBox
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Plain
from robustkit.engine.early import EarlyTrials
from robustkit.engine.jobs import Outcome
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, Trials
from tests.problems import Problem, jobs_of, problem, same

THREE = (1, 2, 3)


def ran(model: nn.Module, made: Problem, attack: Attack, **more) -> tuple[list[Outcome], int]:
    """The outcomes by image, and how many batches there were."""
    batches: list[int] = []
    with Classifier(model).session(made.x) as session:
        ended = list(run(session, attack, jobs_of(made, **more), slots=32, tick=batches.append))
    return sorted(ended, key=lambda outcome: outcome.sample), len(batches)


@pytest.fixture
def in_turn(monkeypatch):
    """Lets no trial begin early from now on."""
    return lambda: monkeypatch.setattr(EarlyTrials, "begin", lambda *_: [])


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize(
    ("attack", "more"),
    [
        (PGD(0.002, steps=8, restarts=3), {}),
        (APGD(0.002, steps=8, loss="dlr", targets=3), {"loss_targets": THREE}),
        (SoftAPGD(0.016, "L2", steps=8, restarts=2, loss="dlr", targets=3), {"loss_targets": THREE}),
        (FAB(0.002, steps=6, targets=3), {"loss_targets": THREE}),
    ],
    ids=["pgd", "apgd-t", "soft_apgd", "fab-t"],
)
def test_trials_that_begin_early_change_neither_outcomes_nor_counts(attack, more, count, in_turn):
    whole = problem("cnn", 1, 8, 8, count=24, classes=8)
    made = Problem(whole.model, whole.x[:count], whole.y[:count])
    early, fewer = ran(made.model, made, attack, **more)
    in_turn()
    one_by_one, batches = ran(made.model, made, attack, **more)

    assert all(same(*pair) for pair in zip(early, one_by_one, strict=True))
    assert fewer <= (batches / 2 if count == 1 else batches)


@dataclass(frozen=True)
class Brinkmanship(PGD):
    """Every trial but the first begins where the gradient is not a number."""

    def init(self, trials: Trials):
        state = super().init(trials)
        edge = torch.where(trials.restart[:, None] > 0, 1.0, state.query[:, :1])
        return replace(state, query=torch.cat([edge, state.query[:, 1:]], 1))


class Cliff(nn.Module):
    """Two classes; class 1 wins where the second value is above 0.6. At the edge of the first the slope is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        lead = 10 * (0.6 - x[:, 1]) + 0 * (1 - x[:, 0]).sqrt()
        return torch.stack([lead, torch.zeros_like(lead)], 1)


@pytest.mark.parametrize(("eps", "falls"), [(0.5, True), (0.05, False)])
def test_a_gradient_that_is_not_finite_counts_only_in_its_turn(eps, falls):
    x = torch.tensor([[0.5, 0.4], [0.6, 0.3]]) if falls else torch.tensor([[0.96, 0.4], [0.97, 0.3]])
    made = Problem(Cliff().eval(), x, torch.zeros(2, dtype=torch.long))
    attack = Brinkmanship(eps, steps=20, restarts=3)

    if falls:
        outcomes, _ = ran(made.model, made, attack)
        assert [each.success for each in outcomes] == [True, True]
        assert [each.restart for each in outcomes] == [0, 0]
    else:
        with pytest.raises(UserError, match="not finite"):
            ran(made.model, made, attack)


def test_memory_that_is_too_short_ends_early_trials_and_no_others(monkeypatch, in_turn):
    made = problem("cnn", 1, 8, 8, count=12, classes=8)
    attack = PGD(0.002, steps=8, restarts=5)
    answered = Plain.query

    def query(self, attack, state):
        if len(state) > 16:
            raise torch.OutOfMemoryError("too many rows")
        return answered(self, attack, state)

    with monkeypatch.context() as short:
        short.setattr(Plain, "query", query)
        halved, _ = ran(made.model, made, attack)
    in_turn()
    whole, _ = ran(made.model, made, attack)

    assert all(same(*pair) for pair in zip(halved, whole, strict=True))


class Constant(nn.Module):
    """Answers every image alike."""

    def __init__(self, answer: np.ndarray) -> None:
        super().__init__()
        self.answer = torch.from_numpy(answer).float()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.answer[: len(x)] + 0 * x.sum()


def test_no_query_of_a_function_is_asked_before_its_turn(monkeypatch):
    made, begun = problem("cnn", 1, 8, 8, count=1), []
    begin = EarlyTrials.begin
    monkeypatch.setattr(EarlyTrials, "begin", lambda *given: begun.append(begin(*given)) or begun[-1])
    attack = SPSA(0.0001, queries=20, restarts=3)
    constant = np.eye(4)[made.y.numpy()].repeat(64, 0)
    ran(BlackBox(lambda images: constant[: len(images)], num_classes=4), made, attack)
    assert not begun
    ran(Constant(constant), made, attack)
    assert sum(map(len, begun)) == 2
