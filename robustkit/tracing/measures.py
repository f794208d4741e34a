"""Measures of how a perturbation changes one layer's output, one number per image.

`a` is a layer's output for the clean images and `b` for the perturbed ones, both `[B, ...]`; every function returns
`[B]` in float64. Undefined values, such as 0 / 0, are NaN.
"""

import torch
from torch import Tensor


def relative_change(a: Tensor, b: Tensor) -> Tensor:
    """`||b - a|| / ||a||`: 0 where nothing changed, infinite where only `a` is zero."""
    return quotient(_length(_flat(b) - _flat(a)), _length(_flat(a)), still=0.0)


def quotient(above: Tensor, below: Tensor, still: float = torch.nan) -> Tensor:
    """`above / below`, and `still` for 0 / 0."""
    nothing = (above == 0) & (below == 0)
    return torch.where(nothing, torch.full_like(above, still), above / below)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between the two outputs: exactly 1 where nothing changed, NaN where one is all zero."""
    first, second = _flat(a), _flat(b)
    value = quotient((first * second).sum(1), _length(first) * _length(second)).clamp(-1, 1)
    return torch.where((first == second).all(1), torch.ones_like(value), value)


def sign_flips(a: Tensor, b: Tensor) -> Tensor:
    """The share of values that are above zero in one of the two outputs only.

    ReLU, GELU, SiLU and tanh do not change the sign, so for them it is the sign-flip rate of the pre-activations.
    """
    return ((a > 0) != (b > 0)).flatten(1).mean(1, dtype=torch.float64)


def attribution(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`<grad, b - a>`: the first-order change of a scalar from `a` to `b`, given its gradient at `a`."""
    return (_flat(grad) * (_flat(b) - _flat(a))).sum(1)


def _flat(values: Tensor) -> Tensor:
    # fp32 sums of a million squares lose three digits, and a small change is a difference of large numbers.
    return values.detach().flatten(1).double()


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return length
