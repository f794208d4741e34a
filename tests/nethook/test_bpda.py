import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.nethook import ShapeMismatchError, UnfiredLayerError, bpda
from tests.nethook.nets import Net, images, keyworded, overwriting_and_copying, seeded, vectors


class Detaching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy().round(1))


def rounding() -> nn.Module:
    return Net(lambda net, x: (x * 8).round() / 8)


@torch.no_grad()
def round_in_place(net: nn.Module, x: Tensor) -> Tensor:
    return x.mul_(8).round_().div_(8)


def defended(defense: nn.Module, no_grad: bool = False) -> nn.Module:
    """A linear layer behind a defense that may write into its input."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = x * 1
        with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
            x = net.defense(x)
        return net.fc(x)

    return seeded(lambda: Net(run, defense=defense, fc=nn.Linear(6, 3)))


@pytest.mark.parametrize("defense", [rounding(), Detaching(), Net(round_in_place), nn.Sigmoid()])
@pytest.mark.parametrize("no_grad", [False, True])
def test_values_are_exact_and_gradients_are_those_of_the_replacement(defense, no_grad):
    net, x = defended(defense, no_grad), vectors().requires_grad_()
    plain = net(x)

    with bpda(net, "defense"):
        out = net(x)
    out.sum().backward()

    assert torch.equal(out, plain)
    # The replacement is the identity, as if there were no defense.
    assert torch.allclose(x.grad, net.fc.weight.sum(0).expand(4, 6))


def test_a_replacement_may_be_a_function_a_module_or_the_layer_itself():
    net, x = defended(nn.Tanh()), vectors().requires_grad_()
    true = torch.autograd.grad(net(x).sum(), x)[0]

    for replacement in (torch.tanh, nn.Tanh(), net.defense):
        with bpda(net, "defense", replacement):
            assert torch.equal(torch.autograd.grad(net(x).sum(), x)[0], true)


def test_a_replacement_gets_the_input_before_the_layer_overwrites_it():
    grads, x = [], images().requires_grad_()
    for net in overwriting_and_copying():
        with bpda(net, "relu", F.gelu):
            grads.append(torch.autograd.grad(net(x).sum(), x)[0])

    assert torch.equal(*grads)


def test_parameters_before_the_layer_get_their_gradient_too():
    net = nn.Sequential(nn.Linear(6, 6), Detaching(), nn.Linear(6, 3))

    with bpda(net, "1"):
        net(vectors()).sum().backward()

    assert net[0].weight.grad.abs().sum() > 0


def test_second_derivatives_go_through_the_replacement():
    net, x = nn.Sequential(rounding()), vectors().requires_grad_()

    with bpda(net, "0", lambda x: x**3):
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)

    assert torch.allclose(torch.autograd.grad(grad.sum(), x)[0], 6 * x)


@pytest.mark.parametrize(("width", "replacement"), [(6, lambda x: x[:, :2]), (3, None)])
def test_a_replacement_of_another_shape_is_an_error(width, replacement):
    net = nn.Sequential(nn.Linear(6, width))

    with pytest.raises(ShapeMismatchError, match="replacement function of layer '0'"), bpda(net, "0", replacement):
        net(vectors())


def test_a_layer_of_two_inputs_needs_a_replacement_of_two_inputs():
    net, x = keyworded(), vectors().requires_grad_()

    with pytest.raises(UserError, match="several tensors"), bpda(net, "mix"):
        net(x)
    with bpda(net, "mix", lambda *, left, right: left + right):
        net(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))


def test_without_gradients_the_replacement_is_not_called():
    net, calls = defended(rounding()), []

    with bpda(net, "defense", lambda x: calls.append(1)), torch.no_grad():
        out = net(vectors())

    assert not calls
    assert not out.requires_grad


def test_a_layer_that_never_ran_is_an_error():
    net = defended(rounding())

    with pytest.raises(UnfiredLayerError, match="'defense'"), bpda(net, "defense"):
        net.fc(vectors())
