import re

import pytest
import torch
from torch import nn

from robustkit.nethook import ParameterNotFoundError, UnfiredLayerError, zero_grad_of
from tests.nethook.nets import Reusing, count, seeded, vectors


def test_chosen_parameters_get_a_gradient_of_zero_and_the_others_their_own():
    net, plain = seeded(Reusing), seeded(Reusing)

    with zero_grad_of(net, "a.*"):
        net(vectors()).sum().backward()
    plain(vectors()).sum().backward()

    assert torch.equal(net.a.weight.grad, torch.zeros(6, 6))
    assert torch.equal(net.a.bias.grad, torch.zeros(6))
    assert torch.equal(net.b.weight.grad, plain.b.weight.grad)


@pytest.mark.parametrize("params", ["*.bias", re.compile(r"[ab]\.bias"), ["a.bias", "b.bias"]])
def test_parameters_are_chosen_by_glob_expression_or_list(params):
    net = seeded(Reusing)

    with zero_grad_of(net, params):
        net(vectors()).sum().backward()

    zero = [name for name, weight in net.named_parameters() if weight.grad.abs().sum() == 0]
    assert sorted(zero) == ["a.bias", "b.bias"]


def test_after_the_context_gradients_are_their_own_again():
    net, plain = seeded(Reusing), seeded(Reusing)

    with zero_grad_of(net):
        torch.autograd.grad(net(vectors()).sum(), net.a.bias)
    for each in (net, plain):
        each(vectors()).sum().backward()

    assert torch.equal(net.a.bias.grad, plain.a.bias.grad)
    assert count(net) == 0


def test_a_zeroed_gradient_still_moves_under_weight_decay_and_a_frozen_parameter_does_not():
    net = seeded(Reusing)
    before = net.a.bias.detach().clone()
    steps = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)

    with zero_grad_of(net, "a.bias"):
        net(vectors()).sum().backward()
    steps.step()
    moved = net.a.bias.detach().clone()
    net.a.bias.requires_grad_(False)
    net.zero_grad()
    net(vectors()).sum().backward()
    steps.step()

    assert torch.allclose(moved, before * (1 - 0.1 * 0.1))
    assert torch.equal(net.a.bias, moved)


def test_a_backward_pass_after_the_context_is_an_error_in_time():
    net = seeded(Reusing)

    with pytest.raises(UnfiredLayerError, match="inside"), zero_grad_of(net):
        net(vectors()).sum()


def test_a_frozen_parameter_among_others_is_no_obstacle():
    net = seeded(Reusing)
    net.b.bias.requires_grad_(False)

    with zero_grad_of(net):
        net(vectors()).sum().backward()

    assert net.b.bias.grad is None
    assert not net.b.bias.requires_grad


def test_a_name_that_fits_nothing_leaves_no_hook():
    net = seeded(Reusing)

    with pytest.raises(ParameterNotFoundError, match=r"'b\.bias'"), zero_grad_of(net, ["a.bias", "b.bais"]):
        pass
    assert count(net) == 0


def test_parameters_of_a_bare_layer_have_names_too():
    net = nn.Linear(6, 2)

    with zero_grad_of(net, "bias"):
        net(vectors()).sum().backward()

    assert torch.equal(net.bias.grad, torch.zeros(2))
