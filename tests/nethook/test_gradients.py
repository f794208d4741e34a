"""Gradients that a Trace reads are those at the layer as it ended, whatever happens to its output later."""

import pytest
import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import StaleActivationError, Trace
from tests.nethook.nets import Founding, Overwriting, Reusing, images, seeded, vectors


def test_a_layer_that_overwrites_its_input_moves_no_gradient():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images()
    hidden = plain.conv(x)
    (wanted,) = torch.autograd.grad(plain.fc(plain.relu(hidden).flatten(1)).sum(), hidden)

    with Trace(net, ["conv", "relu"], grad=True) as trace:
        grads = trace.grad(net(x).sum())

    assert torch.equal(grads["conv"], wanted)
    assert not torch.equal(grads["relu"], wanted)


def test_each_run_of_a_reused_layer_has_its_own_gradient():
    net, x = seeded(Reusing), vectors()
    first = net.act(net.a(x))
    second = net.act(net.b(first))
    wanted = torch.autograd.grad(second.square().sum(), [first, second])

    with Trace(net, "act", grad=True) as trace:
        grads = trace.grad(net(x).square().sum())

    assert [torch.equal(call.grad, grad) for call, grad in zip(trace["act"].calls, wanted, strict=True)] == [True, True]
    assert grads["act"] is trace["act"].grad is trace["act"].calls[1].grad


def test_frozen_parameters_take_no_gradient_away():
    net, x = seeded(Founding).requires_grad_(False), images(1).requires_grad_()

    with Trace(net, "conv", grad=True) as trace:
        grads = trace.grad(net(x).sum())

    assert grads["conv"].abs().sum() > 0


def test_where_nothing_requires_a_gradient_there_is_none():
    net = seeded(Founding)
    net.conv.requires_grad_(False)

    with Trace(net, ["conv", "fc1"], grad=True) as trace:
        grads = trace.grad(net(images(1)).sum())

    assert grads["conv"] is None
    assert torch.equal(grads["fc1"], torch.ones(5))


def test_a_layer_that_the_loss_does_not_depend_on_has_none():
    net, x = seeded(Reusing), vectors()

    with Trace(net, ["a", "b"], grad=True) as trace:
        net(x)
        grads = trace.grad(trace_free_loss(net, x))

    assert grads == {"b": None, "a": None}


def trace_free_loss(net: nn.Module, x: Tensor) -> Tensor:
    return (net.a.weight * 2).sum()


def test_no_grad_of_any_parameter_or_input_is_touched():
    net, x = seeded(Founding), images(1).requires_grad_()

    with Trace(net, grad=True) as trace:
        trace.grad(net(x).sum())

    assert x.grad is None
    assert all(weight.grad is None for weight in net.parameters())


def test_the_graph_can_be_kept_for_a_second_loss():
    net, x = seeded(Founding), images(1)

    with Trace(net, "relu", grad=True) as trace:
        out = net(x)
        first = trace.grad(out[0], retain_graph=True)["relu"]
        second = trace.grad(out[1])["relu"]

    assert torch.equal(first.flatten(), net.fc1.weight[0])
    assert torch.equal(second.flatten(), net.fc1.weight[1])


def test_second_derivatives_go_through():
    net, x = seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh())), vectors().requires_grad_()

    with Trace(net, "1", grad=True) as trace:
        grad = trace.grad(net(x).pow(3).sum(), create_graph=True)["1"]

    assert torch.autograd.grad(grad.sum(), x)[0].abs().sum() > 0


def test_an_output_that_is_the_input_itself_has_the_gradient_of_a_leaf():
    net, x = nn.Sequential(nn.Identity(), nn.Tanh()), vectors().requires_grad_()

    with Trace(net, "0", grad=True) as trace:
        grads = trace.grad(net(x).sum())

    assert torch.equal(grads["0"], torch.autograd.grad(net(x).sum(), x)[0])


def test_a_view_that_is_overwritten_later_is_refused_instead_of_losing_its_gradient():
    net, x = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.ReLU(inplace=True)), images()

    with Trace(net, "1", grad=True) as trace:
        out = net(x)
        with pytest.raises(StaleActivationError, match="view"):
            trace.grad(out.sum())


def test_a_view_that_is_left_alone_has_its_gradient():
    net, x = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.ReLU()), images()

    with Trace(net, "1", grad=True) as trace:
        out = net(x)
        grads = trace.grad(out.sum())

    assert torch.equal(grads["1"], (trace["1"].output > 0).float())


def test_a_loss_of_several_numbers_is_refused():
    net = seeded(Reusing)

    with Trace(net, "a", grad=True) as trace, pytest.raises(UserError, match=r"sum\(\)"):
        trace.grad(net(vectors()).sum(1))


def test_a_loss_without_a_graph_is_refused():
    net = seeded(Reusing)

    with Trace(net, "a", grad=True) as trace, torch.no_grad(), pytest.raises(UserError, match="gradients on"):
        trace.grad(net(vectors()).sum())


def test_a_kept_graph_leaves_no_memory_behind():
    import gc
    import weakref

    net, x = seeded(Reusing), vectors().requires_grad_()
    with Trace(net, grad=True) as trace:
        out = net(x)
        alive = weakref.ref(out)
        trace.grad(out.sum())

    del out, trace
    gc.collect()
    assert alive() is None
