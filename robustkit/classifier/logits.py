"""Logits out of whatever a model returns."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robustkit.errors import UserError


def logits_of(output: Any) -> Tensor:
    """`[B, K]` logits, K >= 2, from a tensor, a tuple, a dict or an object with `.logits`.

    One logit per image is read as a binary classifier's and becomes the two logits (0, z).

    Raises:
        UserError: the output has no such part, or its shape is not `[B, K]`.
    """
    logits = _tensor(output)
    if logits.is_complex():
        raise UserError(
            "The logits of a classifier are real numbers, and this model returns complex ones; return their real part."
        )
    if logits.dim() == 1:
        logits = logits.unsqueeze(1)
    if logits.dim() != 2:
        raise UserError(f"A classifier must return logits [images, classes]; this model returned {list(logits.shape)}.")
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits


def _tensor(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    named = getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Mapping):
        for name in ("logits", "out", "output"):
            if isinstance(output.get(name), Tensor):
                return output[name]  # type: ignore[no-any-return]
        raise UserError(f"The model returned a dict without 'logits'; its keys are {', '.join(map(str, output))}.")
    if isinstance(output, (tuple, list)) and output:
        return _tensor(output[0])
    raise UserError(f"The model returned {type(output).__name__}; wrap it so that it returns a tensor of logits.")
