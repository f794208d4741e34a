"""A smoothed classifier: the queries of an attack and the verdicts."""

import pytest
import torch
from robustkit.attacks import FGSM, FIA, PGD, SGM, Square
from torch import nn

import robustkit
from robustkit.classifier import smoothed as copies
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.engine.jobs import Job, most_verdicts
from robustkit.errors import UserError
from robustkit.primitives.protocol import begin
from robustkit.statistics.randomized_smoothing import ABSTAINS
from tests.problems import images, jobs_of, outcomes, problem, same, trials

HOW = Smoothing(0.1, n=100, n0=10)


def classifier(model: nn.Module, **more: object) -> Classifier:
    return Classifier(model, smoothing=HOW, **more)  # type: ignore[arg-type]


def test_a_query_returns_the_mean_probability_and_its_gradient():
    made = problem("mlp", 1, 4, 4)
    network, x = made.model.double(), made.x.double()
    state = begin(trials(x, made.y), x)
    smooth = copies._smoothed(network, state=state, sigma=0.1, count=5)
    point = x.clone().requires_grad_()

    logits = smooth(point)
    gradient = torch.autograd.grad(logits[:, 1].sum(), point)[0]

    assert logits.exp().sum(1).tolist() == pytest.approx([1.0] * len(x))
    step = torch.zeros_like(x)
    step[:, 0, 2, 1] = 1e-6
    with torch.no_grad():
        slope = (smooth(x + step)[:, 1] - smooth(x - step)[:, 1]) / 2e-6
    assert slope.tolist() == pytest.approx(gradient[:, 0, 2, 1].tolist(), rel=1e-5, abs=1e-8)


def test_the_mean_over_many_copies_is_the_probability_under_noise():
    # P(x + noise > 0) = Phi(x / sigma); a steep slope makes each copy's probability 0 or 1.
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[-1e4], [1e4]]))
    x = torch.tensor([0.0, 0.1, 0.2]).reshape(3, 1, 1, 1)

    chance = copies._smoothed(network, state=begin(trials(x), x), sigma=0.1, count=4000)(x).exp()[:, 1]

    # Three standard deviations of a share of 4000 draws are at most 0.024.
    assert chance.tolist() == pytest.approx([0.5, 0.8413, 0.9772], abs=0.024)


def test_every_query_has_its_own_noise():
    made = problem("mlp", 1, 4, 4)
    state = begin(trials(made.x, made.y), made.x)
    later = type(state)(state.trial, state.query, state.queries + 1, state.done)

    first, again, other = (
        copies._smoothed(made.model, state=each, sigma=0.1, count=5)(made.x) for each in (state, state, later)
    )

    assert torch.equal(first, again)
    assert not torch.isclose(first, other).all(1).any()


def test_a_query_abstains_where_its_copies_are_close_to_a_tie():
    chances = torch.tensor([[0.6, 0.4, 0.0], [0.7, 0.3, 0.0], [0.2, 0.0, 0.8]])

    # One standard deviation of the difference of two shares of 16 copies is a quarter at most.
    assert copies.leading(chances.log(), count=16).tolist() == [ABSTAINS, 0, 2]
    assert copies.leading(chances.log(), count=100).tolist() == [0, 0, 2]


def test_an_abstention_is_no_success_of_the_attack():
    untargeted, targeted = Job(0, torch.zeros(1), 3), Job(0, torch.zeros(1), 3, (1,), 1)

    assert [untargeted.lost(label) for label in (3, 1, ABSTAINS)] == [False, True, False]
    assert [targeted.lost(label) for label in (3, 1, ABSTAINS)] == [False, True, False]


def test_verdicts_are_stricter_the_more_points_an_attack_may_have_judged():
    made = problem("mlp", 1, 4, 4)
    votes = torch.tensor([[68.0, 32.0, 0.0, 0.0]])

    # Two-sided binomial tests: 68 of 100 has p = 0.00040, against alpha = 0.001 and that over 3.
    with classifier(made.model).session(made.x) as session:
        assert session.oracle.decide(votes).tolist() == [0]
        assert session.oracle.decide(votes, 3).tolist() == [ABSTAINS]
    assert most_verdicts(PGD(0.1, steps=4, restarts=3, targets=2)) == 3 * 2 * 5


METHODS = [PGD(0.1, steps=2), Square(0.1, queries=3), SGM(0.1, steps=2)]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_smoothed_model_is_broken_alike_for_any_batch_size_and_order(method):
    made = problem("residual mlp" if isinstance(method, SGM) else "cnn", 1, 8, 8, count=6)
    jobs = jobs_of(made)

    whole, few, back = (
        outcomes(classifier(made.model, eot=6), method, order, slots=slots)
        for order, slots in ((jobs, 6), (jobs, 2), (jobs[::-1], 4))
    )

    assert any(each.success for each in whole)
    assert all(same(*pair) for others in (few, back) for pair in zip(whole, others, strict=True))


@pytest.mark.parametrize(
    ("norm", "eps"),
    [("flow", 0.1), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("spatial", 10.0), ("color", 0.3)))],
)
def test_rendered_images_get_the_noise_not_what_they_are_rendered_from(norm, eps):
    made = problem("cnn", 3, 8, 8, count=12)
    attack = PGD(eps, norm, steps=3)
    smooth = Classifier(made.model, eot=1, smoothing=Smoothing(1e-6, n=100, n0=10))

    ended = outcomes(smooth, attack, jobs_of(made))

    without = outcomes(Classifier(made.model), attack, jobs_of(made))
    assert [each.success for each in ended] == [each.success for each in without]
    assert {each.success for each in ended} == {True, False}


def test_folding_changes_no_verdict_of_a_smoothed_model():
    made = problem("cnn", 1, 8, 8)
    whole, folded = (
        outcomes(classifier(made.model, eot=6, fold=fold), FGSM(0.1), jobs_of(made)) for fold in (False, True)
    )

    assert [each.success for each in whole] == [each.success for each in folded]


def test_the_passes_of_a_smoothed_model_count_every_copy():
    made = problem("cnn", 1, 8, 8, count=4)
    smoothed = classifier(made.model, eot=5)
    ended = outcomes(smoothed, PGD(1e-6, steps=3), jobs_of(made), slots=4)

    assert [(each.forwards, each.backwards) for each in ended] == [(3 * 5 + 100, 3 * 5)] * 4


def test_attack_takes_the_prediction_of_the_smoothed_model_as_clean():
    made = problem("cnn", 1, 8, 8, count=10)
    smoothed = classifier(made.model, name="smoothed")
    with smoothed.session(made.x) as session:
        said = session.oracle.decide(session.judge(made.x))

    found = robustkit.attack(smoothed, made.x, made.y, FGSM(0.3))

    assert torch.equal(found.clean_correct, said == made.y)
    assert found.success.any()
    assert not (found.prediction[found.success] == ABSTAINS).any()


def test_an_attack_on_a_layer_of_many_copies_is_refused():
    made = problem("cnn", 1, 8, 8)

    with pytest.raises(UserError, match="reads a layer"):
        robustkit.attack(classifier(made.model), made.x, made.y, FIA(0.1, layer="body.2"))


def test_nan_on_noisy_images_is_refused():
    class Fragile(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)[:, :3].sqrt()

    x = images(4, 1, 4, 4)
    smoothed = classifier(Fragile())
    with smoothed.session(x) as session, pytest.raises(UserError, match="noisy images"):
        session.judge(x)
