"""ReACG: ACG with large betas made smaller, and with longer periods between checkpoints.

Yamamura et al. 2024, arXiv:2408.03972. Where the previous direction would outweigh the gradient (`|beta|` is above
the mean of `|gradient / direction|`), it is computed from gradients scaled to length 1, if that makes it smaller. Ours
differs: that mean leaves out values whose direction is zero, for which the authors' code has NaN. The search begins at
the image; restarts begin at random points. The direction is described in `_conjugate.py`.
Bad at: networks with logits of an unusual scale, on which the smaller betas depend.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.primitives.protocol import Trials
from robustkit.primitives.rounding import wide
from robustkit.primitives.rows import along

from ._conjugate import ConjugateAscent, hestenes_stiefel


@dataclass(frozen=True)
class ReACG(ConjugateAscent):
    """Rescaling auto conjugate gradient attack in Linf; its arguments are those of `ConjugateAscent`."""

    periods = (0.43, 0.24, 0.08)

    def start(self, trials: Trials) -> Tensor:
        return trials.x

    def beta(self, grad: Tensor, before: Tensor, direction: Tensor) -> Tensor:
        beta = hestenes_stiefel(grad, before, direction)
        rescaled = hestenes_stiefel(_unit(grad), _unit(before), direction)
        last = wide(direction).flatten(1)
        ratio = (wide(grad).flatten(1) / last).abs().where(last != 0, 0.0).sum(1) / (last != 0).sum(1)
        return torch.where((beta.abs() > ratio) & (beta.abs() > rescaled.abs()), rescaled, beta)


def _unit(grad: Tensor) -> Tensor:
    grad = wide(grad)
    return grad / along(grad.flatten(1).norm(dim=1).clamp(min=1e-300), grad)
