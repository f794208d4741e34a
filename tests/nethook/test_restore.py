import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from robustkit.nethook import restored
from tests.nethook.nets import images, seeded, tied, vectors


class Trained(nn.Module):
    """A network with an empty buffer, a buffer with NaN, a frozen parameter and a layer in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()
        self.norm.eval()
        self.register_buffer("empty", None)
        self.register_buffer("odd", torch.tensor([float("nan"), 1.0]))
        self.conv.bias.requires_grad_(False)

    def forward(self, x):
        return self.drop(self.norm(self.conv(x)))


class Told(nn.Linear):
    """Does something when it changes its mode, as layers do that fold weights for inference."""

    def train(self, mode: bool = True):
        self.told = mode
        return super().train(mode)


def test_a_layer_is_told_by_its_own_method_that_its_mode_is_restored():
    layer = Told(2, 2)
    net = nn.Sequential(layer, nn.Sequential(Told(2, 2).eval()))
    with restored(net):
        net.eval()
        assert not layer.told

    assert layer.told
    assert not net[1][0].training


@pytest.mark.parametrize("fails", [False, True])
def test_weights_buffers_modes_gradients_and_flags_are_restored(fails):
    net = seeded(Trained)
    net(images()).sum().backward()
    before, grad = copy.deepcopy(net), net.conv.weight.grad.clone()
    objects = [*net.parameters(), *net.buffers(), net.conv.weight.grad]

    def change() -> None:
        with restored(net):
            net.train()
            net(images(seed=5)).sum().backward()
            net.requires_grad_(True)
            torch.optim.SGD(net.parameters(), lr=1.0).step()
            net.zero_grad()
            net.odd.zero_()
            net.conv.weight = nn.Parameter(torch.zeros(4, 3, 3, 3))
            net.register_parameter("extra", nn.Parameter(torch.zeros(1)))
            _ = 1 / (not fails)

    if fails:
        with pytest.raises(ZeroDivisionError):
            change()
    else:
        change()

    values = zip([*net.parameters(), *net.buffers()], [*before.parameters(), *before.buffers()], strict=True)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in values)
    assert [module.training for module in net.modules()] == [module.training for module in before.modules()]
    assert [weight.requires_grad for weight in net.parameters()] == [w.requires_grad for w in before.parameters()]
    assert torch.equal(net.conv.weight.grad, grad)
    assert all(a is b for a, b in zip(objects, [*net.parameters(), *net.buffers(), net.conv.weight.grad], strict=True))


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_that_forward_registers_leaves_nothing_behind(persistent):
    net = nn.Linear(6, 6)
    with restored(net):
        net.register_buffer("seen", torch.ones(1), persistent=persistent)

    assert list(net.buffers()) == []
    assert net._non_persistent_buffers_set == set()


def test_without_weights_everything_but_their_values_is_restored():
    net = seeded(Trained)
    before = copy.deepcopy(net.state_dict())

    with restored(net, weights=False):
        net.train()(images())
        nn.init.zeros_(net.conv.weight)
        net.conv.bias = nn.Parameter(torch.zeros(4))

    assert not net.norm.training
    assert torch.equal(net.norm.running_mean, before["norm.running_mean"])
    assert torch.equal(net.conv.bias, before["conv.bias"])
    assert net.conv.weight.abs().sum() == 0


def test_a_model_that_was_cast_has_its_own_type_again():
    net, x = seeded(Trained), images()
    plain = net.conv(x)

    with restored(net):
        net.double()

    assert net.conv.weight.dtype == torch.float32
    assert torch.equal(net.conv(x), plain)


@pytest.mark.parametrize("emptied", ["before", "never", "after"])
def test_gradients_of_a_model_that_was_cast_have_their_own_type_again(emptied):
    """The weights were float32 again, their gradients float64."""
    net = seeded(Trained)
    net(images()).sum().backward()
    grad, before = net.conv.weight.grad, net.conv.weight.grad.clone()

    with restored(net):
        if emptied == "before":
            net.zero_grad()
        net.double()
        if emptied == "after":
            net.zero_grad()

    assert net.conv.weight.grad is grad
    assert grad.dtype == torch.float32
    assert torch.equal(grad, before)


def test_gradients_of_weights_that_stay_cast_stay_cast_too():
    net = seeded(Trained)
    net(images()).sum().backward()
    before = net.conv.weight.grad.clone()

    with restored(net, weights=False):
        net.double()
        net.conv.weight.grad.zero_()

    assert net.conv.weight.dtype == net.conv.weight.grad.dtype == torch.float64
    assert torch.equal(net.conv.weight.grad, before.double())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("weights", [True, False])
def test_a_scripted_model_is_restored(weights):
    net = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))

    with restored(net, weights=weights):
        net(images())
        net.eval()

    assert net.training
    assert net[1].running_mean.abs().sum() == 0


def test_random_states_are_restored():
    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    net = seeded(Trained)
    with restored(net):
        first = draws()
    with restored(net):
        second = draws()

    assert first == second == draws()


def test_a_graph_made_before_remains_valid_if_nothing_was_changed():
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1))
    loss = net(vectors()).sum()

    with restored(net):
        net(vectors())

    loss.backward()
    assert net[0].weight.grad is not None


def test_tied_weights_stay_tied():
    net = seeded(tied)

    with restored(net):
        net.decoder = nn.Linear(6, 6)
        net.encoder.weight = nn.Parameter(torch.zeros(6, 6))
    net.decoder = net.encoder

    assert net.encoder.weight.abs().sum() > 0
