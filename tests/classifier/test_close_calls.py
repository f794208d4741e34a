"""A point whose two leading classes are closer than rounding breaks no image."""

import pytest
import torch
from robustkit.attacks import PGD
from torch import Tensor, nn

from robustkit import Attacked, Classifier, attack


class ByBatch(nn.Module):
    """Two classes on one pixel, with a boundary that moves by `spread` with the size of the batch."""

    def __init__(self, spread: float, gain: float = 1.0) -> None:
        super().__init__()
        self.weight, self.spread, self.gain = nn.Parameter(torch.ones(1)), spread, gain

    def forward(self, x: Tensor) -> Tensor:
        value = x.flatten(1)[:, 0].to(self.weight) * self.weight
        moved = self.spread * ((len(x) + 1) % 5)  # none in a batch of 64, where a verdict falls
        return torch.stack([torch.ones_like(value), 1 + self.gain * (value - 0.5) - moved], 1)


def one_step(model: nn.Module, beyond: float) -> Attacked:
    """The result of one step from 0.4 to 0.5 + beyond, where the other class begins."""
    x = torch.full((1, 1, 2, 2), 0.4, dtype=torch.float64)
    # A step of the whole radius, so that the point is known.
    method = PGD(eps=0.1 + beyond, norm="Linf", steps=1, step_size=0.1 + beyond, random_start=False)
    return attack(model, x, torch.zeros(1, dtype=torch.int64), method)


def broken(model: nn.Module, beyond: float) -> bool:
    return bool(one_step(model, beyond).success)


@pytest.mark.parametrize(("beyond", "expected"), [(1e-2, True), (3e-6, False)])
def test_a_point_that_other_batch_sizes_classify_correctly_breaks_no_image(beyond, expected):
    assert broken(ByBatch(spread=2e-6), beyond) == expected


def test_the_forwards_of_a_close_call_are_counted():
    far, near = (one_step(ByBatch(spread=2e-6), beyond).forwards.item() for beyond in (1e-2, 3e-6))

    assert near - far == 1 + 2 + 3 + 5 + 8 + 16 + 33 + 64


def test_a_float64_model_is_judged_by_float64_logits():
    # The lead of 1e-9 is lost in fp32, where both logits are 1.
    assert broken(ByBatch(spread=0).double(), 1e-9)
    assert not broken(ByBatch(spread=0).double(), 1e-16)


def test_a_float64_models_logits_keep_their_digits():
    model = nn.Linear(6, 3).double()
    x = torch.rand(5, 6, dtype=torch.float64)
    with Classifier(model).session(x) as session:
        logits = session.logits(x)

    assert logits.dtype == torch.float64
    with torch.no_grad():
        assert torch.allclose(logits, model(x), rtol=1e-14, atol=1e-14)


def test_every_success_holds_in_any_batch_size_though_the_boundary_is_near():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 5))
    x = torch.rand(40, 30)
    with torch.no_grad():
        # Two almost equal classes: the second is the first, less a hair.
        model[2].weight[1], model[2].bias[1] = model[2].weight[0], model[2].bias[0] - 1e-7
        y = model(x).argmax(1)
    result = attack(model, x, y, PGD(eps=0.05, norm="Linf", steps=5))

    assert not result.success.all()
    for size in (1, 3, 40):
        with torch.no_grad():
            labels = torch.cat([model(part).argmax(1) for part in result.x_adv.split(size)])
        assert (labels != y)[result.success].all()
