"""Acting on each step one step late, as on a GPU, changes no outcome and no count. The contract checks every attack."""

import pytest
import torch
from robustkit.attacks import APGD, FAB, PGD, Square
from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Plain
from robustkit.engine import scheduler
from robustkit.engine.jobs import Job
from robustkit.engine.late import UnreadStep
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from tests.problems import jobs_of, problem, same


def ended(session, attack, jobs, slots=3, **more):
    return sorted(run(session, attack, jobs, slots=slots, **more), key=lambda outcome: outcome.sample)


def assert_equal_when_late(classifier, attack, jobs, slots=3):
    with classifier.session(torch.stack([job.x for job in jobs])) as session:
        at_once = ended(session, attack, jobs, slots)
        late = ended(session, attack, jobs, slots, late=True)

    assert all(same(*pair) for pair in zip(at_once, late, strict=True))
    return late


@pytest.mark.parametrize("slots", [2, 64])
def test_any_number_of_slots_ends_the_same(slots):
    made = problem("cnn", 1, 8, 8, count=24)
    late = assert_equal_when_late(Classifier(made.model), PGD(0.03, steps=5, restarts=3), jobs_of(made), slots)

    assert {outcome.success for outcome in late} == {True, False}


def test_targets_count_as_reached_by_their_class_alone():
    made = problem("cnn", 1, 8, 8, count=20)
    jobs = [Job(job.sample, job.x, job.y, (3,), 3) for job in jobs_of(made) if job.y != 3]
    late = assert_equal_when_late(Classifier(made.model), APGD(0.06, steps=6), jobs)

    assert {outcome.success for outcome in late} == {True, False}


def test_the_nearest_error_is_the_same():
    made = problem("cnn", 1, 8, 8, count=6)

    assert_equal_when_late(Classifier(made.model), FAB("minimum", "L2", steps=8, restarts=2), jobs_of(made))


def test_zero_gradients_are_counted_alike():
    made = problem("cnn", 1, 8, 8, count=6)
    flat = nn.Sequential(nn.Threshold(2.0, 0.0), made.model)
    with torch.no_grad():
        y = flat(made.x).argmax(1).tolist()
    jobs = [Job(number, x, y[number]) for number, x in enumerate(made.x)]
    late = assert_equal_when_late(Classifier(flat, fold=False), PGD(0.1, steps=4), jobs)

    assert all(outcome.zero_backwards == 4 for outcome in late)


def test_a_refuted_claim_goes_on_where_it_was():
    # The network that is queried always predicts one class, so each of its claims is judged and refuted.
    made = problem("cnn", 1, 8, 8, count=12)
    classifier = Classifier(made.model)

    class Constant(nn.Module):
        def forward(self, x):
            logits = made.model(x) * 1e-3
            return logits + 100 * nn.functional.one_hot(torch.tensor(0), logits.shape[1])

    jobs = [job for job in jobs_of(made) if job.y != 0]
    with classifier.session(made.x) as session:
        session.search._searched = Constant()
        at_once, late = (ended(session, PGD(0.01, steps=4), jobs, late=late) for late in (False, True))

    assert all(same(*pair) for pair in zip(at_once, late, strict=True))
    assert any(outcome.forwards == 9 for outcome in late)


@pytest.mark.parametrize("failures", [{0}, {3}, {2, 5}])
def test_out_of_memory_changes_nothing(monkeypatch, failures):
    made = problem("cnn", 1, 8, 8, count=20)
    attack, jobs = PGD(0.02, steps=6, restarts=2), jobs_of(made)
    answered, calls = Plain.query, iter(range(10_000))
    with Classifier(made.model).session(made.x) as session:
        reference = ended(session, attack, jobs, slots=16)

        def query(self, attack, state):
            if next(calls) in failures:
                raise torch.OutOfMemoryError("too many rows")
            return answered(self, attack, state)

        monkeypatch.setattr(Plain, "query", query)
        late = ended(session, attack, jobs, slots=16, late=True)

    assert all(same(*pair) for pair in zip(reference, late, strict=True))


def test_an_infinite_gradient_names_its_image():
    made = problem("cnn", 1, 8, 8, count=3)

    class Steep(nn.Module):
        def forward(self, x):
            return made.model(x) + 0 * (x - x.detach()).flatten(1).sum(1, keepdim=True).sqrt()

    with Classifier(Steep(), fold=False).session(made.x) as session, pytest.raises(UserError, match=r"image \d"):
        ended(session, PGD(0.1, steps=3), jobs_of(made), late=True)


def test_no_step_is_read_before_the_next_one_is_queried(monkeypatch):
    made, order = problem("cnn", 1, 8, 8, count=3), []
    queried, read = Plain.query, UnreadStep.read
    monkeypatch.setattr(Plain, "query", lambda *given: order.append("query") or queried(*given))
    monkeypatch.setattr(UnreadStep, "read", lambda *given: order.append("read") or read(*given))
    with Classifier(made.model).session(made.x) as session:
        ended(session, PGD(0.0, steps=4), jobs_of(made), late=True)

    assert order == ["query", "query", "read", "query", "read", "query", "read", "query", "read"]


def test_guessed_queries_and_trials_at_several_radii_are_acted_on_at_once(monkeypatch):
    made = problem("cnn", 1, 8, 8, count=3)
    monkeypatch.setattr(scheduler.Scheduler, "_advance_late", None)
    with Classifier(made.model).session(made.x) as session:
        for attack in (Square(0.1, queries=5), PGD("minimum", steps=2, radii=2)):
            assert len(ended(session, attack, jobs_of(made), late=True)) == 3
