"""The example this part of robustkit began with: zero bias gradients, and no negative gradient out of a layer."""

import torch
from torch import Tensor, nn

from robustkit.nethook import clamp_grad, zero_grad_of
from tests.nethook.nets import Founding, images, seeded


def by_one_liners(net: nn.Module, x: Tensor, layer: str) -> list[bool]:
    with zero_grad_of(net, "fc*.bias"), clamp_grad(net, layer, min=0, at="output"):
        (1 - net(x)).mean().backward()
    return []


def by_hand(net: nn.Module, x: Tensor) -> list[bool]:
    below: list[bool] = []
    for name, parameter in net.named_parameters():
        if "fc" in name and "bias" in name:
            parameter.register_hook(torch.zeros_like)
    hidden = net.relu(net.conv(x))
    hidden.register_hook(lambda grad: torch.clamp(grad, min=0))
    hidden.register_hook(lambda grad: below.append(bool((grad < 0).any())))
    (1 - net.fc1(net.flatten(hidden))).mean().backward()
    return below


def test_one_liners_and_plain_tensor_hooks_give_the_same_gradients():
    ours, plain, x = seeded(Founding), seeded(Founding), images(1)

    by_one_liners(ours, x, "relu")
    below = by_hand(plain, x)

    assert below == [False]
    assert torch.equal(ours.fc1.bias.grad, torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0]))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))
    assert ours.conv.weight.grad.abs().sum() > 0


def test_without_them_the_gradients_are_others():
    ours, plain, x = seeded(Founding), seeded(Founding), images(1)

    by_one_liners(ours, x, "relu")
    (1 - plain(x)).mean().backward()

    assert torch.allclose(plain.fc1.bias.grad, torch.full((5,), -0.2))
    assert not torch.equal(ours.conv.weight.grad, plain.conv.weight.grad)


def test_no_gradient_below_zero_flows_out_of_the_convolution():
    net, plain = seeded(Founding), seeded(Founding)
    x, same = images(1).requires_grad_(), images(1).requires_grad_()

    with zero_grad_of(net, "fc1.bias"), clamp_grad(net, "conv", min=0):
        (1 - net(x)).mean().backward()
    own = same.clone()
    own.register_hook(lambda grad: grad.clamp(min=0))
    (1 - plain(own)).mean().backward()

    assert torch.equal(net.fc1.bias.grad, torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0]))
    assert x.grad.min() == 0
    assert x.grad.max() > 0
    assert torch.equal(x.grad, same.grad)
