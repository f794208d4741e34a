"""ReACG: ACG whose betas are cut where they are large, and whose periods between checkpoints are longer.

Yamamura et al. 2024, arXiv:2408.03972. Where beta would let the direction before outweigh the gradient (its size is
above the mean of `|gradient / direction|`), it is computed from gradients of length 1, if that makes it smaller. Ours
differs: values that the direction leaves at zero are left out of that mean, in which the authors' code has NaN for
them. Begins at the image, restarts at random points; see `_conjugate.py` for the direction.
Bad at: logits of an unusual scale, on which the cut betas depend.
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
    """Rescaling auto conjugate gradient attack; its arguments are those of `ConjugateAscent`."""

    periods = (0.43, 0.24, 0.08)

    def start(self, trials: Trials) -> Tensor:
        return trials.x

    def beta(self, grad: Tensor, before: Tensor, direction: Tensor) -> Tensor:
        beta = hestenes_stiefel(grad, before, direction)
        cut = hestenes_stiefel(_unit(grad), _unit(before), direction)
        last = wide(direction).flatten(1)
        ratio = (wide(grad).flatten(1) / last).abs().where(last != 0, 0.0).sum(1) / (last != 0).sum(1)
        return torch.where((beta.abs() > ratio) & (beta.abs() > cut.abs()), cut, beta)


def _unit(grad: Tensor) -> Tensor:
    grad = wide(grad)
    return grad / along(grad.flatten(1).norm(dim=1).clamp(min=1e-300), grad)
