import pytest
import torch
from robustkit.attacks import APGD, PGD, Noise, Square
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Plain
from robustkit.engine.jobs import Job, Outcome
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack
from tests.problems import Problem, images, jobs_of, outcomes, problem, same

SHORT = PGD(0.02, steps=6, restarts=2)


def grey(count: int = 12) -> Problem:
    return problem("cnn", 1, 8, 8, count=count)


def equal(one: list[Outcome], other: list[Outcome]) -> bool:
    return all(same(*pair) for pair in zip(one, other, strict=True))


class Constant(nn.Module):
    """A search network that always predicts one class, with the gradient of the true model."""

    def __init__(self, model: nn.Module, label: int) -> None:
        super().__init__()
        self.model, self.label = model, label

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x) * 1e-3
        return logits + 100 * torch.nn.functional.one_hot(torch.tensor(self.label), logits.shape[1])


def with_false_labels(label: int, attack: Attack, jobs: list[Job], model: nn.Module) -> list[Outcome]:
    classifier = Classifier(model)
    with classifier.session(torch.stack([job.x for job in jobs])) as session:
        session.search._searched = Constant(model, label)
        return sorted(run(session, attack, jobs, slots=5), key=lambda outcome: outcome.sample)


def test_every_job_has_one_outcome():
    made = grey(30)
    ended = outcomes(Classifier(made.model), SHORT, jobs_of(made), slots=4)

    assert [outcome.sample for outcome in ended] == list(range(30))


def test_no_jobs_have_no_outcomes():
    made = grey()
    classifier = Classifier(made.model)
    with classifier.session(made.x) as session:
        assert list(run(session, SHORT, [], slots=4)) == []


def test_free_slots_are_refilled_at_once():
    made = grey(40)
    classifier, rows = Classifier(made.model), []
    with classifier.session(made.x) as session:
        ended = list(run(session, PGD(0.02, steps=6), jobs_of(made), slots=8, tick=rows.append))
    queries = sum(outcome.backwards for outcome in ended)

    assert sum(rows) == queries
    assert max(rows) == 8
    # All slots are busy until the queue is empty.
    assert sum(row == 8 for row in rows) >= queries / 8 - 6


def test_jobs_are_read_as_they_are_needed():
    made = grey(100)
    drawn: list[int] = []

    def stream():
        for job in jobs_of(made):
            drawn.append(job.sample)
            yield job

    classifier = Classifier(made.model)
    with classifier.session(made.x) as session:
        first = next(run(session, PGD(0.02, steps=3), stream(), slots=4))

    assert first.sample in drawn
    # 64 points are judged together and 4 trials are in flight.
    assert len(drawn) < 80


def test_jobs_that_are_there_later_change_no_outcome():
    made = grey(40)
    reference = outcomes(Classifier(made.model), SHORT, jobs_of(made))
    late = [each for job in jobs_of(made) for each in ([job, None] if job.sample % 3 == 0 else [job])]
    with Classifier(made.model).session(made.x) as session:
        ended = sorted(run(session, SHORT, late, slots=8), key=lambda outcome: outcome.sample)

    assert equal(ended, reference)


def test_broken_images_are_not_queried_again():
    made = grey(30)
    ended = outcomes(Classifier(made.model), SHORT, jobs_of(made))

    assert all(outcome.backwards == outcome.queries for outcome in ended if outcome.success and outcome.restart == 0)
    assert any(outcome.queries < 6 for outcome in ended)


def test_a_survivor_spends_every_restart_of_every_target():
    made = grey(4)
    ended = outcomes(Classifier(made.model), PGD(0, steps=6, restarts=2), jobs_of(made, loss_targets=(1, 2, 3)))

    assert {(outcome.forwards, outcome.backwards) for outcome in ended} == {(6 * 7, 6 * 6)}
    assert {(outcome.restart, outcome.loss_target) for outcome in ended} == {(1, 3)}


def test_a_success_names_its_restart_and_its_target():
    made = grey(30)
    attack = PGD(0.02, steps=6, restarts=2)
    ended = outcomes(Classifier(made.model), attack, jobs_of(made, loss_targets=(0, 1, 2, 3)))
    late = [outcome for outcome in ended if outcome.success and (outcome.restart or outcome.loss_target)]
    assert late

    for outcome in late:
        trials_before = outcome.loss_target * 2 + outcome.restart
        assert outcome.backwards == trials_before * 6 + outcome.queries


def test_restarts_begin_at_different_points():
    made = grey(20)
    # Without a step the point that is judged is the start.
    one, two = (
        outcomes(Classifier(made.model), PGD(0.01, steps=1, step_size=0.0, restarts=restarts), jobs_of(made))
        for restarts in (1, 2)
    )
    both = [(a, b) for a, b in zip(one, two, strict=True) if not a.success and not b.success]

    assert both
    assert not any(torch.equal(a.x_adv, b.x_adv) for a, b in both)


@pytest.mark.parametrize("slots", [1, 7, 200, *(pytest.param(slots, marks=pytest.mark.slow) for slots in (2, 16, 17))])
def test_outcomes_do_not_depend_on_slots(slots):
    made = grey(40)
    reference = outcomes(Classifier(made.model), SHORT, jobs_of(made), slots=64)

    assert equal(outcomes(Classifier(made.model), SHORT, jobs_of(made), slots=slots), reference)


def test_noise_depends_on_the_number_of_an_image_and_not_on_its_place():
    made = grey(4)
    jobs = [Job(number, made.x[0], int(made.y[0])) for number in (3, 9)]
    attack = Noise(0.02, queries=2)
    together, swapped = (outcomes(Classifier(made.model), attack, each) for each in (jobs, jobs[::-1]))

    assert equal(together, swapped)
    assert not torch.equal(together[0].x_adv, together[1].x_adv)


def test_a_trial_whose_claims_are_refuted_runs_to_its_end():
    made, wrong = grey(9), 0
    jobs = [job for job in jobs_of(made) if job.y != wrong]
    ended = with_false_labels(wrong, PGD(0, steps=4), jobs, made.model)

    # Each query is claimed and refuted, and the last point is judged besides.
    assert not any(outcome.success for outcome in ended)
    assert {(outcome.queries, outcome.backwards, outcome.forwards) for outcome in ended} == {(4, 4, 9)}


def test_a_refuted_claim_does_not_change_the_search():
    # A network with wrong labels and the true gradient reaches the same point as the true model, or an earlier one.
    made, wrong = grey(20), 0
    jobs = [job for job in jobs_of(made) if job.y != wrong]
    attack = PGD(0.02, steps=4, loss="margin")
    lied = with_false_labels(wrong, attack, jobs, made.model)
    honest = outcomes(Classifier(made.model), attack, jobs)

    assert [outcome.sample for outcome in lied] == [outcome.sample for outcome in honest]
    assert any(outcome.success for outcome in lied)
    with torch.no_grad():
        labels = made.model(torch.stack([outcome.x_adv for outcome in lied])).argmax(1).tolist()
    assert [outcome.label for outcome in lied] == labels


def test_the_last_point_is_judged_also_when_the_search_network_claims_no_success():
    made = grey(20)
    jobs = [job for job in jobs_of(made) if job.y == 1]
    ended = with_false_labels(1, PGD(0.1, steps=4), jobs, made.model)

    assert any(outcome.success for outcome in ended)
    assert {outcome.queries for outcome in ended} == {4}


@pytest.mark.parametrize(
    "failures", [{0, 1}, {2, 5}, *(pytest.param(failures, marks=pytest.mark.slow) for failures in ({0}, {3}))]
)
def test_out_of_memory_halves_the_slots_and_changes_nothing(monkeypatch, failures):
    made = grey(40)
    reference = outcomes(Classifier(made.model), SHORT, jobs_of(made), slots=32)
    answered, calls = Plain.query, iter(range(10_000))

    def query(self, attack, state):
        if next(calls) in failures:
            raise torch.OutOfMemoryError("too many rows")
        return answered(self, attack, state)

    monkeypatch.setattr(Plain, "query", query)
    rows: list[int] = []
    classifier = Classifier(made.model)
    with classifier.session(made.x) as session:
        ended = list(run(session, SHORT, jobs_of(made), slots=32, tick=rows.append))

    assert equal(sorted(ended, key=lambda outcome: outcome.sample), reference)
    assert max(rows[max(failures) + 1 :]) == 32 // 2 ** len(failures)


def test_the_next_attack_begins_with_as_many_rows_as_fitted_into_memory(monkeypatch):
    made, sizes = grey(40), []
    reference = outcomes(Classifier(made.model), APGD(0.02, steps=3), jobs_of(made), slots=64)
    answered = Plain.query

    def query(self, attack, state):
        sizes.append(len(state))
        if len(state) > 16:
            raise torch.OutOfMemoryError("too many rows")
        return answered(self, attack, state)

    monkeypatch.setattr(Plain, "query", query)
    with Classifier(made.model).session(made.x) as session:
        list(run(session, SHORT, jobs_of(made), slots=64))
        failures = [size for size in sizes if size > 16]
        sizes.clear()
        ended = list(run(session, APGD(0.02, steps=3), jobs_of(made), slots=64))

    assert len(failures) == 2
    assert max(sizes) <= 16
    assert equal(sorted(ended, key=lambda outcome: outcome.sample), reference)


def test_a_model_that_never_fits_is_an_error_and_not_a_loop(monkeypatch):
    made = grey(9)

    def query(self, attack, state):
        raise torch.OutOfMemoryError("too many rows")

    monkeypatch.setattr(Plain, "query", query)
    with pytest.raises(UserError, match="does not fit into memory"):
        outcomes(Classifier(made.model), SHORT, jobs_of(made))


def test_the_judged_point_is_the_one_that_is_returned():
    made = grey(12)
    ended = outcomes(Classifier(made.model), APGD(0.3, "L2", steps=5), jobs_of(made))
    with torch.no_grad():
        labels = made.model(torch.stack([outcome.x_adv for outcome in ended])).argmax(1)

    assert [outcome.label for outcome in ended] == labels.tolist()


def test_a_targeted_trial_does_not_succeed_with_another_wrong_class():
    made = grey(30)
    jobs = [Job(job.sample, job.x, job.y, loss_targets=(3,), target=3) for job in jobs_of(made) if job.y != 3]
    ended = outcomes(Classifier(made.model), PGD(0.05, steps=6), jobs)
    wrong = [outcome for outcome in ended if outcome.label != int(made.y[outcome.sample])]

    assert {outcome.success for outcome in wrong} == {True, False}
    assert all(outcome.success == (outcome.label == 3) for outcome in ended)


class Poisoned(nn.Module):
    """Returns NaN for all points but the clean images."""

    def __init__(self, model: nn.Module, clean: Tensor) -> None:
        super().__init__()
        self.model, self.clean = model, clean

    def forward(self, x: Tensor) -> Tensor:
        known = (x.flatten(1).unsqueeze(1) == self.clean.flatten(1)).all(2).any(1, keepdim=True)
        return torch.where(known, self.model(x), torch.nan)


@pytest.mark.parametrize("attack", [PGD(0.02, steps=3), Square(0.02, queries=5), Noise(0.02, queries=5)])
def test_nan_logits_are_an_error_that_names_the_image(attack):
    made = grey(6)

    with pytest.raises(UserError, match=r"not finite .* image \d"):
        outcomes(Classifier(Poisoned(made.model, made.x)), attack, jobs_of(made))


def test_a_single_image_of_a_single_value_is_attacked():
    model = nn.Sequential(nn.Linear(1, 2))
    x = images(1, 1)
    y = model(x).argmax(1)

    assert len(outcomes(Classifier(model), SHORT, [Job(0, x[0], int(y))], slots=1)) == 1
