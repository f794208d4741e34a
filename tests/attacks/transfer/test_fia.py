import pytest
import torch
from robustkit.attacks import FIA, ILA
from torch import Tensor, nn

from robustkit import UserError, attack
from robustkit.primitives import noise
from robustkit.primitives.protocol import State
from tests.attacks.queries import answer
from tests.problems import filled, images, trials


def network() -> tuple[nn.Module, nn.Module]:
    """The layers below and above the features."""
    return filled(nn.Linear(5, 4)), filled(nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), seed=1)


def after(method: FIA, x: Tensor, turns: int, target: int = -1) -> State:
    below, above = network()
    trial = trials(x)
    trial = type(trial)(**{**vars(trial), "loss_target": torch.full((len(x),), target)})
    state = method.at((4,)).init(trial)
    for _ in range(turns):
        state = method.at((4,)).step(state, answer(method, below, above, state))
    return state


def importance(x: Tensor, draws: int, drop: float, label: int = 0) -> Tensor:
    """Summed gradients of a logit in the features of masked copies, by hand."""
    below, above = network()
    total = torch.zeros(len(x), 4)
    for draw in range(draws):
        masked = x * (noise.uniform(trials(x).key, draw, (5,)) >= drop)
        total += (below(masked) > 0) * above[1].weight[label]
    return total


def test_importance_is_summed_over_masked_copies():
    x = images(6, 5)
    state = after(FIA(0.1, ensemble=4, drop=0.5), x, 4)

    assert torch.allclose(state.importance, importance(x, 4, 0.5), atol=1e-6)
    assert not torch.allclose(state.importance, importance(x, 4, 0), atol=1e-6)


def test_the_search_starts_from_the_image_and_without_velocity():
    x = images(6, 5)
    state = after(FIA(0.1, ensemble=3), x, 3)

    assert torch.equal(state.query, x)
    assert torch.equal(state.velocity, torch.zeros_like(x))


def test_important_features_are_suppressed():
    x, (below, _) = images(6, 5), network()
    state = after(FIA(0.1, ensemble=3, step_size=0.02), x, 4)
    weight = importance(x, 3, 0.3)

    assert torch.allclose(state.query, (x - 0.02 * (weight @ below.weight).sign()).clamp(0, 1), atol=1e-6)


def test_the_objective_is_the_features_weighed_by_importance_of_unit_length():
    x, (below, above) = images(6, 5), network()
    method = FIA(0.1, ensemble=3)
    weight = importance(x, 3, 0.3)

    seen = answer(method, below, above, after(method, x, 3))
    expected = -(weight * below(x)).sum(1) / weight.norm(dim=1).clamp(min=1e-9)
    assert torch.allclose(seen.loss, expected, atol=1e-6)


def test_the_features_of_a_target_class_are_raised():
    x, (below, _) = images(6, 5), network()
    state = after(FIA(0.1, ensemble=3, step_size=0.02), x, 4, target=2)
    weight = importance(x, 3, 0.3, label=2)

    assert torch.allclose(state.query, (x + 0.02 * (weight @ below.weight).sign()).clamp(0, 1), atol=1e-6)


def test_without_masks_one_copy_is_the_plain_gradient():
    x, (below, above) = images(6, 5), network()
    state = after(FIA(0.1, ensemble=1, drop=0), x, 1)

    assert torch.equal(state.importance, (below(x) > 0) * above[1].weight[0])


@pytest.mark.parametrize("kind", [FIA, ILA])
def test_a_layer_whose_rows_are_no_images_is_an_error_of_one_line(kind):
    """It was torch's error about sizes that do not match."""
    net, x = nn.Sequential(Doubling(), Halved(nn.Linear(8, 4))), images(6, 8)

    with pytest.raises(UserError, match=rf"'0' makes 2 rows out of 1 image, and {kind.__name__} needs one for each"):
        attack(net, x, net(x).argmax(1), kind(0.1, layer="0"))


class Halved(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).unflatten(0, (2, -1)).mean(0)


class Doubling(nn.Module):
    """All images, and behind them all in reverse."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.flip(1)])
