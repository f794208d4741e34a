"""What cannot be traced is an error that says what to do."""

import pytest
import torch

from robustkit import UserError
from robustkit.tracing import trace
from tests.tracing.nets import Fork, built, linear_net

BAD = {
    "no radius": ({"eps": None}, "radius"),
    "unknown layer": ({"layers": ["bodi"]}, "bodi"),
    "another shape": ({"x_adv": torch.zeros(3, 6)}, "shape"),
    "an ensemble": ({"attack": "default", "eps": 0.1}, "apgd-ce"),
    "an unknown attack": ({"attack": "pdg", "eps": 0.1}, "pgd"),
    "a perturbed image outside the range": ({"x_adv": torch.full((12, 6), 2.0)}, "0, 1"),
}


@pytest.mark.parametrize(("more", "word"), BAD.values(), ids=BAD)
def test_invalid_arguments_are_an_error_that_names_them(more, word):
    model, x, _, y = built(linear_net(), 6)
    with pytest.raises(UserError, match=word):
        trace(model, x, y, **more)


def test_a_model_that_misclassifies_all_images_is_an_error():
    model, x, x_adv, y = built(linear_net(), 6)
    with pytest.raises(UserError, match="wrong"):
        trace(model, x, (y + 1) % 4, x_adv=x_adv)


@pytest.mark.parametrize("dark", [slice(0, 32), slice(0, 16)], ids=["perturbed images", "later images"])
def test_a_network_that_calls_its_layers_in_another_order_for_some_images_is_an_error(dark):
    model, x, _, _ = built(Fork(), 6, count=32)
    with torch.no_grad():
        model.head.bias[0] += 100
    x = 1 - 0.1 * x
    x[dark] = 1 - x[dark]
    x_adv = x + 0.8 if dark.stop == 32 else x.clone()
    with pytest.raises(UserError, match="calls other layers"):
        trace(model, x, torch.zeros(32, dtype=torch.int64), x_adv=x_adv)
