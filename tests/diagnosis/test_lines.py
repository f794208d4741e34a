import inspect

import torch
from torch import nn

from robustkit.diagnosis import unfold_ops
from robustkit.nethook import straight_through

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Masking(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Detach())

    def forward(self, x):
        x = x.sign()
        x = x.data
        return self.inner(x)


class Detach(nn.Module):
    def forward(self, x):
        return x.detach()


class Purifying(nn.Module):
    def __init__(self):
        super().__init__()
        self.denoise = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        with torch.no_grad():
            clean = self.denoise(x)
        return clean + self.denoise(x)


class ZeroGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return 0 * grad


class Zeroing(nn.Module):
    def forward(self, x):
        return ZeroGradient.apply(2 * x)


def line_of(cls, text):
    lines, start = inspect.getsourcelines(cls)
    return start + next(number for number, line in enumerate(lines) if text in line)


def test_each_operation_is_listed_with_its_line():
    sites = unfold_ops(Masking(), X)

    assert [(site.op, site.line) for site in sites] == [
        ("sign", line_of(Masking, "x.sign()")), ("data", line_of(Masking, "x.data")),
    ]  # fmt: skip
    assert all(site.file == __file__ for site in sites)


def test_a_layer_that_is_called_under_no_grad_is_listed_with_the_line_of_that_call():
    """The line was that of `def forward`, and the remedy was to attack without gradients."""
    (site,) = unfold_ops(Purifying(), X)

    assert (site.op, site.line) == ("Sequential", line_of(Purifying, "clean = self.denoise(x)"))
    assert site.reason == "runs without gradients (no_grad)"


def test_operations_of_inner_layers_are_not_listed():
    assert not any("detach" in site.code for site in unfold_ops(Masking(), X))
    assert [site.op for site in unfold_ops(Detach(), X)] == ["detach"]


def test_an_autograd_function_is_listed_at_its_backward():
    (site,) = unfold_ops(Zeroing(), X)

    assert (site.op, site.line) == ("ZeroGradient", line_of(ZeroGradient, "def backward"))


def test_ordinary_layers_have_no_candidate_lines():
    assert unfold_ops(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True)), torch.rand(1, 1, 4, 4)) == ()
    assert unfold_ops(nn.LayerNorm(4), X) == ()


def test_no_hook_is_left_behind():
    module = Masking()
    unfold_ops(module, X)

    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


def test_straight_through_a_network_keeps_its_logits_and_has_the_gradient_of_the_identity():
    network = Masking()
    network.inner[1] = nn.Identity()
    x = X.clone().requires_grad_()
    with straight_through():
        logits = network(x)

    assert torch.equal(logits, network(X))
    grad = torch.autograd.grad(logits.sum(), x)[0]
    assert torch.allclose(grad, network.inner[0].weight.sum(0).expand(2, 4))
