"""What cannot be traced is refused in a sentence that says what to do."""

import pytest
import torch
from torch import nn

from robustkit import UserError
from robustkit.tracing import trace
from tests.tracing.nets import built


def linear_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.Linear(9, 5), nn.Linear(5, 4))


BAD = {
    "no radius": ({"eps": None}, "radius"),
    "unknown layer": ({"layers": ["bodi"]}, "bodi"),
    "another shape": ({"x_adv": torch.zeros(3, 6)}, "shape"),
    "an ensemble": ({"attack": "standard", "eps": 0.1}, "apgd-ce"),
    "an unknown attack": ({"attack": "pdg", "eps": 0.1}, "pgd"),
    "a perturbed image outside the range": ({"x_adv": torch.full((12, 6), 2.0)}, "0, 1"),
}


@pytest.mark.parametrize(("more", "word"), BAD.values(), ids=BAD)
def test_what_cannot_be_traced_is_refused_in_a_sentence(more, word):
    model, x, _, y = built(linear_net(), 6)
    with pytest.raises(UserError, match=word):
        trace(model, x, y, **more)


def test_a_model_that_gets_all_images_wrong_has_nothing_to_follow():
    model, x, x_adv, y = built(linear_net(), 6)
    with pytest.raises(UserError, match="wrong"):
        trace(model, x, (y + 1) % 4, x_adv=x_adv)


def test_a_network_that_takes_another_way_for_other_images_is_refused():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            return self.one(x) if bool(x.mean() < 0.5) else self.other(x)

    model, x, _, y = built(Fork(), 6)
    x = x * 0.1
    with torch.no_grad():
        y = model(x).argmax(1)
    with pytest.raises(UserError, match="calls other layers"):
        trace(model, x, y, x_adv=x + 0.8)
