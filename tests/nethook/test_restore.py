import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from robustkit.nethook import restored
from tests.nethook.nets import Tied, images, seeded, vectors


class Trained(nn.Module):
    """A network with buffers, one of them not a number, and a layer left in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()
        self.norm.eval()
        self.register_buffer("empty", None)
        self.register_buffer("odd", torch.tensor([float("nan"), 1.0]))
        self.conv.bias.requires_grad_(False)

    def forward(self, x):
        return self.drop(self.norm(self.conv(x)))


def test_weights_buffers_modes_gradients_and_flags_come_back():
    net = seeded(Trained)
    net(images()).sum().backward()
    before, grad = copy.deepcopy(net), net.conv.weight.grad.clone()
    objects = [*net.parameters(), *net.buffers(), net.conv.weight.grad]

    with restored(net):
        net.train()
        net(images(seed=5)).sum().backward()
        net.requires_grad_(True)
        torch.optim.SGD(net.parameters(), lr=1.0).step()
        net.zero_grad()
        net.odd.zero_()
        net.drop.p = 0.1
        net.conv.weight = nn.Parameter(torch.zeros(4, 3, 3, 3))
        net.register_parameter("extra", nn.Parameter(torch.zeros(1)))

    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before.parameters(), strict=True))
    assert all(
        torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(net.buffers(), before.buffers(), strict=True)
    )
    assert [module.training for module in net.modules()] == [module.training for module in before.modules()]
    assert [weight.requires_grad for weight in net.parameters()] == [w.requires_grad for w in before.parameters()]
    assert torch.equal(net.conv.weight.grad, grad)
    assert all(a is b for a, b in zip(objects, [*net.parameters(), *net.buffers(), net.conv.weight.grad], strict=True))


def test_a_model_that_was_cast_comes_back_in_its_own_type():
    net, x = seeded(Trained), images()
    plain = net.conv(x)

    with restored(net):
        net.double()

    assert net.conv.weight.dtype == torch.float32
    assert torch.equal(net.conv(x), plain)


def test_random_states_come_back():
    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    net, wanted = seeded(Trained), draws()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])

    with restored(net):
        draws()

    assert draws() == wanted


def test_everything_comes_back_after_an_error():
    net = seeded(Trained)
    before = copy.deepcopy(net.state_dict())

    def fail() -> None:
        nn.init.zeros_(net.conv.weight)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), restored(net):
        fail()

    assert torch.equal(net.conv.weight, before["conv.weight"])


def test_a_graph_made_before_still_works_if_nothing_was_changed():
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1))
    loss = net(vectors()).sum()

    with restored(net):
        net(vectors())

    loss.backward()
    assert net[0].weight.grad is not None


def test_tied_weights_stay_tied():
    net = seeded(Tied)

    with restored(net):
        net.decoder = nn.Linear(6, 6)
        net.encoder.weight = nn.Parameter(torch.zeros(6, 6))
    net.decoder = net.encoder

    assert net.encoder.weight.abs().sum() > 0
