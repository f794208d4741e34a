import pytest
import torch
from robustkit.attacks import ILA
from torch import Tensor, nn

from robustkit import UserError, attack
from tests.attacks.queries import answer
from tests.problems import filled, images, problem, trials


def network() -> tuple[nn.Module, nn.Module]:
    """The layers below and above the features."""
    return filled(nn.Linear(5, 4)), filled(nn.Sequential(nn.Tanh(), nn.Linear(4, 3)), seed=1)


def run(method: ILA, x: Tensor, turns: int) -> list[Tensor]:
    """The queried points."""
    below, above = network()
    state = method.at((4,)).init(trials(x))
    asked = [state.query]
    for _ in range(turns):
        state = method.at((4,)).step(state, answer(method, below, above, state))
        asked.append(state.query)
    return asked


def test_the_guide_is_iterative_fgsm():
    x, (below, above) = images(6, 5), network()
    point = x.clone()
    for mine in run(ILA(0.1, guide_steps=3, steps=2), x, 3):
        assert torch.allclose(mine, point, atol=1e-6)

        query = point.clone().requires_grad_()
        loss = ILA(0.1).objective(above(below(query)), trials(x)).sum()
        point = point + 0.1 / 3 * torch.autograd.grad(loss, query)[0].sign()
        point = point.clamp(x - 0.1, x + 0.1).clamp(0, 1)


def test_then_the_features_move_on_in_the_guides_direction():
    x, (below, _) = images(6, 5), network()
    asked = run(ILA(0.5, guide_steps=2, steps=2, step_size=0.01), x, 4)
    direction = (asked[2] - x) @ below.weight.T @ below.weight  # of a linear layer, the same at every point

    assert torch.allclose(asked[3], (asked[2] + 0.01 * direction.sign()).clamp(0, 1), atol=1e-6)
    assert torch.allclose(asked[4], (asked[3] + 0.01 * direction.sign()).clamp(0, 1), atol=1e-6)


def test_the_reference_starts_again_from_the_image():
    x, (below, _) = images(6, 5), network()
    asked = run(ILA(0.5, guide_steps=2, steps=2, step_size=0.01, variant="reference"), x, 5)
    direction = (asked[2] - x) @ below.weight.T @ below.weight

    assert torch.equal(asked[3], x)
    assert torch.allclose(asked[4], (x + 0.01 * direction.sign()).clamp(0, 1), atol=1e-6)


def test_the_objective_is_one_where_the_guide_ended():
    x, (below, above), method = images(6, 5), network(), ILA(0.3, guide_steps=1).at((4,))
    state = method.init(trials(x))
    state = method.step(state, answer(method, below, above, state))

    assert torch.allclose(answer(method, below, above, state).loss, torch.ones(6), atol=1e-4)


def test_a_guide_that_changed_no_feature_gives_no_step():
    x, below, above = images(3, 5), nn.Linear(5, 4), nn.Linear(4, 3)
    nn.init.zeros_(below.weight)
    method = ILA(0.3, guide_steps=1, steps=1).at((4,))
    state = method.init(trials(x))
    for _ in range(2):
        state = method.step(state, answer(method, below, above, state))

    assert torch.equal(state.query, x)


def test_a_layer_that_is_not_there_is_an_error():
    made = problem("cnn", 1, 8, 8)

    with pytest.raises(UserError, match="'bodi'; similar names are 'body'"):
        attack(made.model, made.x, made.y, ILA(0.03, layer="bodi"))


def test_a_layer_that_never_runs_is_an_error():
    made = problem("cnn", 1, 8, 8)
    made.model.idle = nn.Linear(2, 2)

    with pytest.raises(UserError, match="'idle'"):
        attack(made.model, made.x, made.y, ILA(0.03, layer="idle"))


def test_a_surrogate_gives_its_points_to_another_model():
    source, target = problem("cnn", 1, 8, 8), problem("mlp", 1, 8, 8)
    result = attack(target.model, target.x, target.y, ILA(0.2), surrogate=source.model)
    with torch.no_grad():
        label = target.model(result.x_adv).argmax(1)

    assert torch.equal(label != target.y, result.success)
    assert (result.queries == 20).all()
