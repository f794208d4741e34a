import re

import pytest
import torch
from torch import nn

from robustkit import UserError
from robustkit.nethook import ParameterNotFoundError, UnfiredLayerError, zero_grad_of
from tests.nethook.nets import Reusing, hook_count, seeded, vectors


@pytest.mark.parametrize("params", ["*.bias", re.compile(r"[ab]\.bias"), ["a.bias", "b.bias"]])
def test_chosen_parameters_have_a_gradient_of_zero_and_others_their_own(params):
    net, plain = seeded(Reusing), seeded(Reusing)

    with zero_grad_of(net, params):
        net(vectors()).sum().backward()
    plain(vectors()).sum().backward()

    for name, weight in net.named_parameters():
        own = plain.get_parameter(name).grad
        assert torch.equal(weight.grad, torch.zeros_like(own) if name.endswith("bias") else own)


@pytest.mark.parametrize("params", [5, None, [5], nn.Linear(2, 2).weight])
def test_what_cannot_choose_parameters_is_an_error_that_says_what_can(params):
    """A number was "'int' object is not iterable"."""
    with pytest.raises(UserError, match="Parameters are given as a name"), zero_grad_of(seeded(Reusing), params):
        pass


def test_no_parameter_at_all_is_an_error():
    """It was "generator raised StopIteration" at the end of the context."""
    with pytest.raises(ParameterNotFoundError, match="No parameters were given"), zero_grad_of(seeded(Reusing), []):
        pass


def test_after_the_context_gradients_are_unchanged_again():
    net, plain = seeded(Reusing), seeded(Reusing)

    with zero_grad_of(net):
        torch.autograd.grad(net(vectors()).sum(), net.a.bias)
    for each in (net, plain):
        each(vectors()).sum().backward()

    assert torch.equal(net.a.bias.grad, plain.a.bias.grad)
    assert hook_count(net) == 0


def test_weight_decay_moves_a_parameter_with_zero_gradient_but_not_a_frozen_one():
    net = seeded(Reusing)
    before = net.a.bias.detach().clone()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)

    with zero_grad_of(net, "a.bias"):
        net(vectors()).sum().backward()
    optimizer.step()
    moved = net.a.bias.detach().clone()
    net.a.bias.requires_grad_(False)
    net.zero_grad()
    net(vectors()).sum().backward()
    optimizer.step()

    assert torch.allclose(moved, before * (1 - 0.1 * 0.1))
    assert torch.equal(net.a.bias, moved)


def test_a_backward_pass_after_the_context_is_an_error():
    net = seeded(Reusing)

    with pytest.raises(UnfiredLayerError, match="inside"), zero_grad_of(net):
        net(vectors()).sum()


def test_a_frozen_parameter_among_others_stays_frozen():
    net = seeded(Reusing)
    net.b.bias.requires_grad_(False)

    with zero_grad_of(net):
        net(vectors()).sum().backward()

    assert net.b.bias.grad is None
    assert not net.b.bias.requires_grad


def test_a_name_that_matches_nothing_leaves_no_hook():
    net = seeded(Reusing)

    with pytest.raises(ParameterNotFoundError, match=r"'b\.bias'"), zero_grad_of(net, ["a.bias", "b.bais"]):
        pass
    assert hook_count(net) == 0


def test_parameters_of_a_single_layer_have_names_too():
    net = nn.Linear(6, 2)

    with zero_grad_of(net, "bias"):
        net(vectors()).sum().backward()

    assert torch.equal(net.bias.grad, torch.zeros(2))
