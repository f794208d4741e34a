import pytest
import torch
from robustkit.attacks import Bandits

from robustkit import attack
from robustkit.primitives.protocol import Seen
from tests.attacks.linear import linear, scaled
from tests.attacks.score.driven import states
from tests.problems import images, trials


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_errors_of_a_linear_classifier_within_the_radius_are_found(norm):
    made = linear(2)
    radius = 1.2 * made.distance[norm].max().item()
    result = attack(made.model, made.x, made.y, Bandits(radius, norm, queries=400, cells=1.0))

    assert result.success.all()


def test_the_scale_of_the_logits_does_not_change_a_bit():
    made = linear(3)
    method = Bandits(0.05, queries=60)
    quiet, loud = (
        list(states(method, model, trials(made.x, made.y)))[-1] for model in (made.model, scaled(made, 2.0**10))
    )

    assert torch.equal(quiet.query, loud.query)
    assert torch.equal(quiet.prior, loud.prior)


def test_a_step_of_the_prior_in_linf_is_the_exponentiated_gradient_step_of_the_paper():
    # Algorithm 2 of the paper on p = (x + 1) / 2, whose values are probabilities.
    before, grad, rate = torch.tensor([-0.9, 0.0, 0.3]), torch.tensor([0.5, -2.0, 1.0]), 0.2
    share = (before + 1) / 2
    up, down = share * (rate * grad).exp(), (1 - share) * (-rate * grad).exp()
    method = Bandits(0.1)
    state = method.init(trials(torch.zeros(1, 1, 1, 3)))
    after = method._spread_out(state, (before.atanh() + rate * grad).reshape(1, 1, 1, 3))

    assert torch.allclose(after.flatten(), 2 * up / (up + down) - 1)


def test_all_pixels_of_a_cell_move_alike():
    method = Bandits(0.1, cells=0.25)
    state = method.init(trials(torch.full((2, 3, 64, 33), 0.5)))
    state = method.step(state, next_answer(state))
    change = state.query - state.point

    assert state.prior.shape == (2, 3, 16, 8)
    assert (change.reshape(2, 3, 16, 4, 33).amax(3) == change.reshape(2, 3, 16, 4, 33).amin(3)).all()
    assert change.flatten(1).norm(dim=1).tolist() == pytest.approx([0.1, 0.1])


def test_the_point_itself_is_queried_after_every_few_estimates():
    made = linear(2)
    method = Bandits(0.01, queries=40, estimates=3)
    inside = [torch.equal(state.query, state.point) for state in states(method, made.model, trials(made.x, made.y))]

    # The first query, at the image, comes before the first step.
    assert [number + 1 for number, same in enumerate(inside) if same] == [7, 14, 21, 28, 35]


def test_where_no_answer_differs_the_prior_stays():
    x = images(3, 1, 8, 8)
    method = Bandits(0.1, queries=20)
    state = method.init(trials(x))
    while not state.done.all():
        state = method.step(state, next_answer(state))

    assert not state.prior.any()
    assert torch.equal(state.point, x)


def next_answer(state):
    """The same loss everywhere."""
    nothing = state.query.new_zeros(len(state), 0)
    return Seen(state.trial.y, nothing, state.best_loss.new_zeros(len(state)), nothing)
