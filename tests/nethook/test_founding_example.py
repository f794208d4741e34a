"""The first use case of these hooks: bias gradients of zero, and no negative gradient out of a layer."""

import torch
from torch import Tensor, nn

from robustkit.nethook import clamp_grad, zero_grad_of
from tests.nethook.nets import Founding, images, seeded


def with_tensor_hooks(net: nn.Module, x: Tensor) -> list[bool]:
    """The same by hooks on tensors; whether negative gradients were left."""
    negative: list[bool] = []
    net.fc1.bias.register_hook(torch.zeros_like)
    hidden = net.relu(net.conv(x))
    hidden.register_hook(lambda grad: torch.clamp(grad, min=0))
    hidden.register_hook(lambda grad: negative.append(bool((grad < 0).any())))
    (1 - net.fc1(net.flatten(hidden))).mean().backward()
    return negative


def test_contexts_and_plain_tensor_hooks_give_the_same_gradients():
    ours, by_hand, plain, x = seeded(Founding), seeded(Founding), seeded(Founding), images(1)

    with zero_grad_of(ours, "fc*.bias"), clamp_grad(ours, "relu", min=0, at="output"):
        (1 - ours(x)).mean().backward()
    (1 - plain(x)).mean().backward()

    assert with_tensor_hooks(by_hand, x) == [False]
    assert torch.equal(ours.fc1.bias.grad, torch.zeros(5))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours.parameters(), by_hand.parameters(), strict=True))
    # Without the contexts, gradients are different.
    assert torch.allclose(plain.fc1.bias.grad, torch.full((5,), -0.2))
    assert ours.conv.weight.grad.abs().sum() > 0
    assert not torch.equal(ours.conv.weight.grad, plain.conv.weight.grad)


def test_no_negative_gradient_flows_out_of_the_convolution():
    net, plain = seeded(Founding), seeded(Founding)
    x, same = images(1).requires_grad_(), images(1).requires_grad_()

    with zero_grad_of(net, "fc1.bias"), clamp_grad(net, "conv", min=0):
        (1 - net(x)).mean().backward()
    copy = same.clone()
    copy.register_hook(lambda grad: grad.clamp(min=0))
    (1 - plain(copy)).mean().backward()

    assert torch.equal(net.fc1.bias.grad, torch.zeros(5))
    assert x.grad.min() == 0
    assert x.grad.max() > 0
    assert torch.equal(x.grad, same.grad)
