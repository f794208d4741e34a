"""Adversarial weight perturbation: the gradient is taken where the loss is worst near the weights, layer by layer.

Wu, Xia & Wang 2020, arXiv:2004.05884, with one step of ascent. As in the paper, each layer's weights move by a length
relative to their norm; vectors (biases, BatchNorm) are not perturbed. Ours differs: the weights are restored before the
optimizer's step and not after it, so that weight decay sees the weights themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.primitives.rows import version


@contextmanager
def perturbed(weights: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], size: float) -> Iterator[None]:
    """The weights one step up the gradient while the context lasts; then restored to the same bits.

    Args:
        weights: of the layers.
        gradients: of the loss in these weights; None where it does not depend on them.
        size: length of each layer's step, in units of the norm of its weights; the paper's gamma.

    Raises:
        UserError: a weight was changed inside, as by the optimizer's step; that change is undone.
    """
    moved = [(weight, grad) for weight, grad in zip(weights, gradients, strict=True)
             if grad is not None and weight.dim() > 1 and weight.numel()]  # fmt: skip
    before = [weight.detach().clone() for weight, _ in moved]
    try:
        with torch.no_grad():
            for weight, grad in moved:
                weight.add_(_step(weight, grad, size))
        # Under autocast, the copies of the weights that the attack and the ascent made would be used on.
        torch.clear_autocast_cache()
        versions = [version(weight) for weight, _ in moved]
        yield
        kept = all(
            version(weight) == number or torch.equal(weight, old + _step(old, grad, size))
            for (weight, grad), old, number in zip(moved, before, versions, strict=True)
        )
    finally:
        with torch.no_grad():
            for (weight, _), values in zip(moved, before, strict=True):
                # A copy: subtracting the step would leave its rounding error.
                weight.copy_(values)
        torch.clear_autocast_cache()
    if not kept:
        # The authors' code takes the optimizer's step before it subtracts the perturbation.
        raise UserError(
            "The weights were changed while they were perturbed, and that change is lost; call the optimizer's step "
            "after the context, with backward alone inside."
        )


@torch.no_grad()
def _step(weight: Tensor, grad: Tensor, size: float) -> Tensor:
    # Divided by its largest value first, or the squares of tiny gradients underflow. A gradient of zero stays zero, and
    # moves nothing.
    direction = grad / grad.abs().amax().clamp(min=torch.finfo(grad.dtype).tiny)
    step: Tensor = direction * (size * weight.norm() / direction.norm().clamp(min=1))
    return step
