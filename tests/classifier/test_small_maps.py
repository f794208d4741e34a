import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from robustkit.classifier.small_maps import as_matrices


def matrices(convolution: nn.Conv2d) -> nn.Sequential:
    network = nn.Sequential(copy.deepcopy(convolution)).requires_grad_(False)
    as_matrices(network)
    return network


def answered(network: nn.Module, x: Tensor) -> list[Tensor]:
    """The outputs, and the gradients in the input of their weighted sum."""
    point = x.clone().requires_grad_()
    y = network(point)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), point)]


axes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2))


@given(axes, axes, st.sampled_from([1, 2]), st.booleans())
@settings(max_examples=60)
def test_no_output_and_no_gradient_changes(rows, columns, groups, bias):
    size, *arguments = zip(rows, columns, strict=True)
    assume(all(n + 2 * p > d * (k - 1) for n, k, _, p, d in (rows, columns)))
    torch.manual_seed(0)
    convolution = nn.Conv2d(2, 4, *arguments, groups=groups, bias=bias, dtype=torch.float64)
    x = torch.rand(3, 2, *size, dtype=torch.float64)

    for whole, product in zip(answered(convolution, x), answered(matrices(convolution), x), strict=True):
        assert torch.allclose(whole, product, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "shape"),
    [
        (1, 3, 1, (6, 4)), (2, 3, 2, (6, 16)), (2, 3, 1, (24, 16)), (2, 1, 2, (6, 16)),
        (3, 3, 1, None), (2, 1, 1, None), (8, 3, 1, None),
    ],
)  # fmt: skip
def test_small_maps_are_multiplied_by_a_matrix(size, kernel, stride, shape, order):
    torch.manual_seed(0)
    convolution = nn.Conv2d(4, 6, kernel, stride, kernel // 2).to(memory_format=order)
    network = matrices(convolution)
    x = torch.rand(16, 4, size, size).to(memory_format=order)

    assert torch.allclose(network(x), convolution(x), atol=1e-6)
    (product,) = network[0]._products.values()
    assert (None if product is None else tuple(product.matrix.shape)) == shape


def test_a_network_answers_maps_of_several_sizes():
    torch.manual_seed(0)
    convolution = nn.Conv2d(4, 4, 3, padding=1)
    network = matrices(convolution)

    for size in (1, 2, 5, 1):
        x = torch.rand(16, 4, size, size)
        assert torch.allclose(network(x), convolution(x), atol=1e-6)
