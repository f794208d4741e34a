"""A diagnosis changes nothing, whatever goes wrong, and its numbers are each image's own."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from robustkit import UserError
from robustkit.classifier.classifier import Classifier
from robustkit.diagnosis import diagnose
from robustkit.nethook import leftover_hooks
from tests.diagnosis.nets import EPS, base, defended, images

FIGURES = ("grad_norm", "zero", "nonfinite", "fidelity", "fidelity_small", "linearity", "reach", "saturation")


def traits(model):
    modes = [module.training for module in model.modules()]
    values = [(name, value.tolist()) for name, value in model.state_dict().items()]
    grads = [(weight.requires_grad, weight.grad is None) for weight in model.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    return [modes, values, grads, hooks, len(leftover_hooks(model))]


class Fragile(nn.Module):
    """Fails at the n-th call, in forward or in backward, and at all later ones."""

    def __init__(self, after: int, where: str) -> None:
        super().__init__()
        self.body, self.left, self.where = base(), after, where

    def forward(self, x):
        self.left -= 1
        if self.left < 0 and self.where == "forward":
            raise RuntimeError("no more")
        logits = self.body(x)
        if self.where == "backward" and logits.requires_grad:
            logits.register_hook(self.refuse)
        return logits

    def refuse(self, grad):
        if self.left < 0:
            raise RuntimeError("no more")
        return grad


@pytest.mark.parametrize("name", ["quantised", "kwta", "noisy"])
def test_the_model_comes_back_as_it_was(name):
    model, (x, y) = defended(name).train(), images(8)
    list(model.modules())[2].eval()
    next(model.parameters()).requires_grad_(False)
    handle = model.register_forward_hook(lambda *_: None)  # somebody else's
    before, state = traits(model), torch.random.get_rng_state()
    diagnose(model, x, y, eps=EPS, prove=name == "quantised")

    assert traits(model) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    handle.remove()


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("after", range(6))
def test_the_model_comes_back_as_it_was_when_it_fails_midway(where, after):
    model, (x, y) = Fragile(after, where).train(), images(8)
    before = traits(model)
    with pytest.raises(RuntimeError, match="no more"):
        diagnose(model, x, y, eps=EPS, prove=False)

    assert traits(model) == before


def test_the_images_are_not_written_to():
    (x, y), model = images(8), nn.Sequential(nn.ReLU(inplace=True), base())
    before = x.clone()
    diagnose(model, x, y, eps=EPS, prove=False)

    assert torch.equal(x, before)


@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(9)), batch_size=st.integers(1, 9))
def test_results_depend_neither_on_order_nor_on_batch_size(order, batch_size):
    model, (x, y) = defended("kwta"), images(9)
    one = diagnose(model, x, y, eps=EPS, prove=False)
    other = diagnose(model, x[list(order)], y[list(order)], eps=EPS, prove=False, batch_size=batch_size)

    assert [(row.layer, row.verdict) for row in one.rows] == [(row.layer, row.verdict) for row in other.rows]
    for first, second in zip(one.rows, other.rows, strict=True):
        for name in FIGURES:
            a, b = getattr(first, name), getattr(second, name)
            # Kernels round differently in other batch sizes, and a hundredth of a move magnifies that.
            assert a == b or math.isclose(a, b, rel_tol=2e-3, abs_tol=2e-3)


def test_pixels_of_another_range_are_diagnosed_alike():
    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = defended("quantised")

        def forward(self, x):
            return self.body(x / 256)

    x, y = images(12)
    one = diagnose(defended("quantised"), x, y, eps=EPS, prove=False)
    other = diagnose(Halved(), x * 256, y, eps=EPS, bounds=(0, 256), prove=False)

    assert [(f"body.{row.layer}", row.fidelity) for row in one.rows] == [
        (row.layer, row.fidelity) for row in other.rows
    ]


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others():
    model, (x, y) = base(), images(12)
    one, same, other = (diagnose(model, x, y, eps=EPS, seed=seed, prove=False) for seed in (3, 3, 4))

    assert one.to_json() == same.to_json()
    assert one.rows[1].fidelity != other.rows[1].fidelity


def test_a_classifier_is_diagnosed_with_the_names_of_its_network():
    x, y = images(12)
    found = diagnose(Classifier(defended("quantised"), mean=[0.0], std=[1.0]), x, y, eps=EPS)

    assert [row.layer for row in found.culprits] == ["quantise"]
    assert found.proof.after < 0.5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"eps": 0}, "above zero"), ({"eps": "8"}, "8/255"), ({"norm": "L7"}, "no norm"), ({"loss": "nope"}, "no loss"),
     ({"batch_size": 0}, "batch_size"), ({"layers": "conv9"}, "conv9"), ({"y": torch.full((8,), 11)}, "no class")],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_sentence(change, sentence):
    x, y = images(8)
    with pytest.raises(UserError, match=sentence):
        diagnose(base(), x, **{"y": y, "eps": EPS, "prove": False, **change})


def test_images_outside_their_bounds_are_refused():
    x, y = images(8)
    with pytest.raises(UserError, match="must lie in"):
        diagnose(base(), 2 * x, y, eps=EPS)


@pytest.mark.parametrize("norm", ["L2", "L1", "L0"])
def test_every_norm_finds_the_culprit(norm):
    x, y = images(16)
    found = diagnose(defended("quantised"), x, y, eps={"L2": 1, "L1": 5, "L0": 8}[norm], norm=norm, prove=False)

    assert [(row.layer, row.verdict) for row in found.culprits] == [("quantise", "step")]


def test_an_untouched_copy_gives_the_same_diagnosis():
    model, (x, y) = defended("sigmoid"), images(8)
    other = copy.deepcopy(model)

    one, same = (diagnose(each, x, y, eps=EPS, prove=False) for each in (model, other))

    assert one.to_json() == same.to_json()
