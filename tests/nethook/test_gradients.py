"""The gradients of a Trace are those at the layer when it ended, even if its output is overwritten later."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import StaleActivationError, Trace
from tests.nethook.nets import Founding, Reusing, images, overwriting_and_copying, seeded, vectors


def test_a_layer_that_overwrites_its_input_changes_no_gradient():
    (net, plain), x = overwriting_and_copying(), images()
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

    assert all(torch.equal(call.grad, grad) for call, grad in zip(trace["act"].calls, wanted, strict=True))
    assert grads["act"] is trace["act"].grad is trace["act"].calls[1].grad


@pytest.mark.parametrize(("inputs_require_grad", "frozen"), [(True, "net"), (False, "conv")])
def test_frozen_parameters_remove_only_gradients_that_nothing_requires(inputs_require_grad, frozen):
    net, x = seeded(Founding), images(1).requires_grad_(inputs_require_grad)
    (net if frozen == "net" else net.conv).requires_grad_(False)

    with Trace(net, ["conv", "fc1"], grad=True) as trace:
        grads = trace.grad(net(x).sum())

    assert (grads["conv"] is None) == (not inputs_require_grad)
    assert torch.equal(grads["fc1"], torch.ones(5))


def test_layers_on_which_the_loss_does_not_depend_have_no_gradient():
    net = seeded(Reusing)

    with Trace(net, ["a", "b"], grad=True) as trace:
        net(vectors())
        grads = trace.grad((net.a.weight * 2).sum())

    assert grads == {"b": None, "a": None}


def test_no_grad_of_any_parameter_or_input_is_written():
    net, x = seeded(Founding), images(1).requires_grad_()

    with Trace(net, grad=True) as trace:
        trace.grad(net(x).sum())

    assert x.grad is None
    assert all(weight.grad is None for weight in net.parameters())


def test_the_graph_can_be_retained_for_a_second_loss():
    net, x = seeded(Founding), images(1)

    with Trace(net, "relu", grad=True) as trace:
        out = net(x)
        first = trace.grad(out[0], retain_graph=True)["relu"]
        second = trace.grad(out[1])["relu"]

    assert torch.equal(first.flatten(), net.fc1.weight[0])
    assert torch.equal(second.flatten(), net.fc1.weight[1])


def test_second_derivatives_can_be_computed():
    net, x = seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh())), vectors().requires_grad_()

    with Trace(net, "1", grad=True) as trace:
        grad = trace.grad(net(x).pow(3).sum(), create_graph=True)["1"]

    assert torch.autograd.grad(grad.sum(), x)[0].abs().sum() > 0


def test_an_output_that_is_the_input_itself_has_the_gradient_of_a_leaf():
    net, x = nn.Sequential(nn.Identity(), nn.Tanh()), vectors().requires_grad_()

    with Trace(net, "0", grad=True) as trace:
        grads = trace.grad(net(x).sum())

    assert torch.equal(grads["0"], torch.autograd.grad(net(x).sum(), x)[0])


@pytest.mark.parametrize("inplace", [True, False])
def test_a_view_has_a_gradient_unless_it_is_overwritten_which_is_an_error(inplace):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.ReLU(inplace))

    with Trace(net, "1", grad=True) as trace:
        loss = net(images()).sum()
        if inplace:
            with pytest.raises(StaleActivationError, match="view"):
                trace.grad(loss)
        else:
            assert torch.equal(trace.grad(loss)["1"], (trace["1"].output > 0).float())


def test_a_loss_of_several_numbers_or_without_a_graph_is_an_error():
    net = seeded(Reusing)

    def losses() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            detached = net(vectors()).sum()
        return net(vectors()).sum(1), detached

    with Trace(net, "a", grad=True) as trace:
        for loss, sentence in zip(losses(), (r"sum\(\)", "gradients on"), strict=True):
            with pytest.raises(UserError, match=sentence):
                trace.grad(loss)


def test_the_graph_is_freed_after_the_trace():
    net, x = seeded(Reusing), vectors().requires_grad_()
    with Trace(net, grad=True) as trace:
        out = net(x)
        alive = weakref.ref(out)
        trace.grad(out.sum())

    del out, trace
    gc.collect()
    assert alive() is None


def test_a_view_made_under_no_grad_has_no_gradient():
    """Such a view claims to need a gradient, and asking torch for its edge failed with an AssertionError."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    x = torch.rand(2, 3, 4, requires_grad=True)
    with Trace(net, grad=True, strict=False) as trace, torch.no_grad():
        net(2 * x)

    assert trace.calls
    assert all(call.edge is None for call in trace.calls)


def test_code_of_the_model_in_inference_mode_has_no_gradient_as_under_no_grad():
    class Quiet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.inference_mode():
                hidden = self.a(x)
            return self.b(hidden.clone())

    with Trace(Quiet(), grad=True) as trace:
        grads = trace.grad(trace.model(torch.rand(2, 3)).sum())

    assert grads["a"] is None
    assert torch.equal(grads["b"], torch.ones(2, 3))
