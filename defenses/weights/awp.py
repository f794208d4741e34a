"""Adversarial weight perturbation: the gradient is taken where the loss is worst near the weights, layer by layer.

Wu, Xia & Wang 2020, arXiv:2004.05884, with one step of ascent. As in the paper, the weights of each
layer move by a length relative to their own; vectors (biases, BatchNorm) stay. Running statistics do not move for the
ascent.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def perturbed(weights: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], size: float) -> Iterator[None]:
    """The weights a step up the gradient while the context lasts; restored to the bit.

    Args:
        weights: of the layers.
        gradients: of the loss in them; None where it does not depend on them.
        size: length of the step of each layer, in units of the length of its weights; the paper's gamma.
    """
    moved = [(weight, grad) for weight, grad in zip(weights, gradients, strict=True)
             if grad is not None and weight.dim() > 1]  # fmt: skip
    before = [weight.detach().clone() for weight, _ in moved]
    try:
        with torch.no_grad():
            for weight, grad in moved:
                length = grad.norm().clamp(min=torch.finfo(grad.dtype).tiny)
                weight.add_(grad * (size * weight.norm() / length))
        yield
    finally:
        with torch.no_grad():
            for (weight, _), values in zip(moved, before, strict=True):
                # A copy: subtracting what was added would leave its rounding.
                weight.copy_(values)
