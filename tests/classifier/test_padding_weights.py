import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from robustkit.classifier.padding_weights import without_padding_weights


def both(convolution: nn.Conv2d, x: Tensor) -> list[list[Tensor]]:
    """The outputs and input gradients of a convolution, and of the same one without the weights that meet padding."""
    network = nn.Sequential(copy.deepcopy(convolution)).requires_grad_(False)
    without_padding_weights(network)
    results = []
    for each in (convolution, network):
        point = x.clone().requires_grad_()
        y = each(point)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
        results.append([y.detach(), *torch.autograd.grad((y * weights).sum(), point)])
    return results


axes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2))


@given(axes, axes, st.sampled_from([1, 2]))
@settings(max_examples=150)
def test_no_output_and_no_gradient_changes(rows, columns, groups):
    size, *arguments = zip(rows, columns, strict=True)
    assume(all(n + 2 * p > d * (k - 1) for n, k, _, p, d in (rows, columns)))
    torch.manual_seed(0)
    convolution = nn.Conv2d(2, 4, *arguments, groups=groups, dtype=torch.float64)

    whole, trimmed = both(convolution, torch.rand(3, 2, *size, dtype=torch.float64))
    assert all(torch.allclose(one, other, rtol=0, atol=1e-12) for one, other in zip(whole, trimmed, strict=True))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("size", "stride", "left"), [(1, 1, (3, 1)), (2, 2, (2, 2)), (2, 1, (3, 3)), (3, 1, (3, 3))])
def test_weights_that_meet_padding_alone_are_left_out(size, stride, left, order):
    torch.manual_seed(0)
    convolution = nn.Conv2d(64, 64, 3, stride, 1).to(memory_format=order)
    network = nn.Sequential(copy.deepcopy(convolution)).requires_grad_(False)
    without_padding_weights(network)
    x = torch.rand(16, 64, size, size).to(memory_format=order)
    network(x)
    (part,) = network[0]._parts.values()

    assert tuple(part.weight.shape[2:]) == left
    assert part.weight.is_contiguous(memory_format=order)
    assert torch.allclose(network(x), convolution(x), atol=1e-6)  # the same bits on processors that were tried


def test_a_network_answers_maps_of_several_sizes():
    torch.manual_seed(0)
    convolution = nn.Conv2d(4, 4, 3, padding=1)
    network = nn.Sequential(copy.deepcopy(convolution))
    without_padding_weights(network)

    for size in (1, 2, 5, 1):
        x = torch.rand(16, 4, size, size)
        assert torch.allclose(network(x), convolution(x), atol=1e-6)
