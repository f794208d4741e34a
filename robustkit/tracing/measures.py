"""How one layer's output answers a perturbation: numbers of one image each, never of a batch.

`a` is a layer's output on the clean images and `b` on the perturbed ones, both `[B, ...]`; every function gives `[B]`
in float64. A value that is not defined, such as the growth of nothing, is NaN.
"""

import torch
from torch import Tensor


def relative_change(a: Tensor, b: Tensor) -> Tensor:
    """`||b - a|| / ||a||`: 0 where nothing changed, infinite where something came out of nothing."""
    return quotient(_length(_flat(b) - _flat(a)), _length(_flat(a)), still=0.0)


def quotient(above: Tensor, below: Tensor, still: float = torch.nan) -> Tensor:
    """`above / below` where 0 / 0 is `still`."""
    nothing = (above == 0) & (below == 0)
    return torch.where(nothing, torch.full_like(above, still), above / below)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between the two outputs: exactly 1 where nothing changed, NaN where one is all zero."""
    first, second = _flat(a), _flat(b)
    value = quotient((first * second).sum(1), _length(first) * _length(second)).clamp(-1, 1)
    return torch.where((first == second).all(1), torch.ones_like(value), value)


def sign_flips(a: Tensor, b: Tensor) -> Tensor:
    """The share of values that are above zero in one output only.

    ReLU, GELU, SiLU and tanh keep the sign, so in their row this is the rate at which their pre-activations flip.
    """
    return ((a > 0) != (b > 0)).flatten(1).mean(1, dtype=torch.float64)


def attribution(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`<grad, b - a>`: the change of a scalar that its gradient in `a` promises for the move to `b`."""
    return (_flat(grad) * (_flat(b) - _flat(a))).sum(1)


def _flat(values: Tensor) -> Tensor:
    # fp32 sums of a million squares lose three digits, and a small drift is a difference of large numbers.
    return values.detach().flatten(1).double()


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return length
