import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.nethook import ShapeMismatchError, UnfiredLayerError, bpda
from tests.nethook.nets import Keyworded, Overwriting, images, seeded, vectors


class Rounding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 8).round() / 8


class Detaching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy().round(1))


class RoundingInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.mul_(8).round_().div_(8)


class Defended(nn.Module):
    """A linear layer behind a defence, and a place in between that copies, for defences that overwrite."""

    def __init__(self, defence: nn.Module, quiet: bool = False) -> None:
        super().__init__()
        self.defence, self.quiet = defence, quiet
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.quiet):
            x = self.defence(x)
        return self.fc(x)


@pytest.mark.parametrize("defence", [Rounding(), Detaching(), RoundingInPlace(), nn.Sigmoid()])
@pytest.mark.parametrize("quiet", [False, True])
def test_values_are_exact_and_gradients_those_of_the_surrogate(defence, quiet):
    net, x = seeded(lambda: Defended(defence, quiet)), vectors().requires_grad_()
    plain = net(x)

    with bpda(net, "defence"):
        out = net(x)
    out.sum().backward()

    assert torch.equal(out, plain)
    # The identity: as if the defence were not there.
    assert torch.allclose(x.grad, net.fc.weight.sum(0).expand(4, 6))


def test_a_surrogate_may_be_a_function_a_module_or_the_layer_itself():
    net, x = seeded(lambda: Defended(nn.Tanh())), vectors().requires_grad_()

    def grad(surrogate) -> Tensor:
        with bpda(net, "defence", surrogate):
            return torch.autograd.grad(net(x).sum(), x)[0]

    true = torch.autograd.grad(net(x).sum(), x)[0]
    assert torch.equal(grad(torch.tanh), true)
    assert torch.equal(grad(nn.Tanh()), true)
    assert torch.equal(grad(net.defence), true)


def test_a_surrogate_sees_the_input_before_the_layer_overwrites_it():
    net, plain, x = seeded(Overwriting), seeded(lambda: Overwriting(inplace=False)), images().requires_grad_()

    def grad(each) -> Tensor:
        with bpda(each, "relu", F.gelu):
            return torch.autograd.grad(each(x).sum(), x)[0]

    assert torch.equal(grad(net), grad(plain))


def test_parameters_before_the_layer_get_their_gradient_too():
    net = nn.Sequential(nn.Linear(6, 6), Detaching(), nn.Linear(6, 3))

    with bpda(net, "1"):
        net(vectors()).sum().backward()

    assert net[0].weight.grad.abs().sum() > 0


def test_second_derivatives_go_through_the_surrogate():
    net, x = nn.Sequential(Rounding()), vectors().requires_grad_()

    with bpda(net, "0", lambda x: x**3):
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)

    assert torch.allclose(torch.autograd.grad(grad.sum(), x)[0], 6 * x)


def test_a_surrogate_of_another_shape_is_refused():
    net = seeded(lambda: Defended(nn.Linear(6, 6)))

    with pytest.raises(ShapeMismatchError, match="'defence'"), bpda(net, "defence", lambda x: x[:, :2]):
        net(vectors())


def test_the_identity_cannot_stand_for_a_layer_that_changes_the_shape():
    net = nn.Sequential(nn.Linear(6, 3))

    with pytest.raises(ShapeMismatchError, match="surrogate"), bpda(net, "0"):
        net(vectors())


def test_the_identity_cannot_stand_for_a_layer_of_two_inputs_but_a_surrogate_can():
    net, x = Keyworded(), vectors().requires_grad_()

    with pytest.raises(UserError, match="several tensors"), bpda(net, "mix"):
        net(x)
    with bpda(net, "mix", lambda *, left, right: left + right):
        net(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))


def test_without_gradients_the_surrogate_is_not_asked():
    net, asked = seeded(lambda: Defended(Rounding())), []

    with bpda(net, "defence", lambda x: asked.append(1)), torch.no_grad():
        out = net(vectors())

    assert not asked
    assert not out.requires_grad


def test_a_layer_that_never_ran_is_an_error():
    net = seeded(lambda: Defended(Rounding()))

    with pytest.raises(UnfiredLayerError, match="'defence'"), bpda(net, "defence"):
        net.fc(vectors())
