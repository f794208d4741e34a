import inspect

import torch
from torch import nn

from robustkit.diagnosis import unfold_ops
from robustkit.diagnosis.straight_through import StraightThroughNetwork

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Cut())

    def forward(self, x):
        x = x.sign()
        x = x.data
        return self.inner(x)


class Cut(nn.Module):
    def forward(self, x):
        return x.detach()


class Killed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return 0 * grad


class Kill(nn.Module):
    def forward(self, x):
        return Killed.apply(2 * x)


def line_of(cls, text):
    lines, start = inspect.getsourcelines(cls)
    return start + next(number for number, line in enumerate(lines) if text in line)


def test_each_operation_is_found_with_its_line():
    sites = unfold_ops(Mixed(), X)

    assert [(site.op, site.line) for site in sites] == [
        ("sign", line_of(Mixed, "x.sign()")), ("data", line_of(Mixed, "x.data")),
    ]  # fmt: skip
    assert all(site.file == __file__ for site in sites)


def test_layers_inside_are_not_searched():
    assert not any("detach" in site.code for site in unfold_ops(Mixed(), X))
    assert [site.op for site in unfold_ops(Cut(), X)] == ["detach"]


def test_an_autograd_function_is_found_at_its_backward():
    (site,) = unfold_ops(Kill(), X)

    assert (site.op, site.line) == ("Killed", line_of(Killed, "def backward"))


def test_ordinary_layers_have_no_candidates():
    assert unfold_ops(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True)), torch.rand(1, 1, 4, 4)) == ()
    assert unfold_ops(nn.LayerNorm(4), X) == ()


def test_the_search_leaves_no_hook_behind():
    module = Mixed()
    unfold_ops(module, X)

    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


def test_a_straightened_network_answers_alike_and_passes_gradients():
    network = Mixed()
    network.inner[1] = nn.Identity()
    straight, x = StraightThroughNetwork(network), X.clone().requires_grad_()

    assert torch.allclose(straight(x), network(X))
    with torch.no_grad():
        assert torch.equal(straight(X), network(X))
    grad = torch.autograd.grad(straight(x).sum(), x)[0]
    assert torch.allclose(grad, network.inner[0].weight.sum(0).expand(2, 4))
