"""Values of an attack's objective: mistakes in an attack of the user's own that would weaken it silently."""

from typing import Any

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack


def one_per_row(attack: Attack, values: Any, logits: Tensor, *, function: str = "objective") -> Tensor:
    """`[B]` what an attack's objective returned for logits `[B, K]`, if an attack can climb on it.

    Raises:
        UserError: it is no float for each row, or NaN where the logits are not. (On a GPU, NaN is not looked for: the
            host would have to wait.)
    """
    return _checked(attack, values, logits, function, columns=False)


def several_per_row(attack: Attack, values: Any, logits: Tensor) -> Tensor:
    """`[B, C]` what an attack's `objectives` returned for logits `[B, K]`; errors as of `one_per_row`."""
    return _checked(attack, values, logits, "objectives", columns=True)


def _checked(attack: Attack, values: Any, logits: Tensor, function: str, *, columns: bool) -> Tensor:
    name, rows = f"{type(attack).__name__}.{function}", len(logits)
    wanted = f"[{rows}, C] floats, some for each image" if columns else f"[{rows}] floats, one for each image"
    if not isinstance(values, Tensor):
        raise UserError(f"{name} must return a tensor, {wanted}, not {type(values).__name__}.")
    if values.dim() != 1 + columns or len(values) != rows or not values.is_floating_point():
        found = f"{list(values.shape)} of {values.dtype}".replace("torch.", "")
        raise UserError(f"{name} must return {wanted}, not {found}; leave out sums and means over images.")
    if values.device.type == "cpu" and _hides_nan(values.detach(), logits.detach()):
        raise UserError(
            f"{name} returned NaN for finite logits; correct it, for example with clamp before log or sqrt."
        )
    return values


def _hides_nan(values: Tensor, logits: Tensor) -> bool:
    bad = values.isnan()
    if not bool(bad.any()):
        return False
    bad = bad.flatten(1).any(1) if bad.dim() > 1 else bad
    return bool(torch.isfinite(logits[bad]).flatten(1).all(1).any())
