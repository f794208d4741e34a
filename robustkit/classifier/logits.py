"""Logits out of whatever a model returns."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robustkit.errors import UserError

_USUAL = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_NESTED = 8  # a model may wrap its logits into that many tuples and dicts


def logits_of(output: Any, images: Tensor | None = None) -> Tensor:
    """`[B, K]` logits, K >= 2, from a tensor, a tuple, a dict or an object with `.logits`.

    One logit per image is read as a binary classifier's and becomes the two logits (0, z). Whole numbers and float8
    become fp32; one whole number per image is no logit but a class, and refused. A network whose parts are on several
    devices may answer on another one than that of its images: the logits are moved to theirs.

    Args:
        output: what the model returned.
        images: `[B, *S]` that it got; None leaves number and device as they are.

    Raises:
        UserError: the output has no such part, or it is no plain tensor of real numbers of shape `[B, K]`.
    """
    logits = output if type(output) is Tensor else _tensor(output, _NESTED)
    whole = not (logits.is_floating_point() or logits.is_complex())
    if logits.is_meta or logits.is_nested or logits.layout is not torch.strided or logits.dtype not in _USUAL:
        logits = _usual(logits)
    logits = unnamed(logits)
    shape = logits.shape
    if len(shape) == 1:
        if whole:
            raise UserError(
                "The model returned one whole number for each image, as classes are; let it return logits, or pass "
                "robustkit.BlackBox(FUNCTION, returns='labels', num_classes=...)."
            )
        logits = logits.unsqueeze(1)
        shape = logits.shape
    if len(shape) != 2 or not shape[1]:
        raise UserError(f"A classifier must return logits [images, classes]; this model returned {list(shape)}.")
    if images is not None and shape[0] != len(images):
        raise UserError(
            f"The model returned {shape[0]} rows of logits for {len(images)} images; let it return one row for each "
            "image."
        )
    if shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits if images is None or logits.device == images.device else logits.to(images.device)


def of_probabilities(shares: Tensor) -> Tensor:
    """`[B, K]` logits that stand for probabilities: their logarithms, finite where one is 0."""
    return shares.clamp(min=torch.finfo(shares.dtype).tiny).log()


def unnamed(values: Tensor) -> Tensor:
    """Without the names of dimensions, which older versions of torch have and many of their operations refuse."""
    return values.rename(None) if any(getattr(values, "names", ())) else values  # type: ignore[attr-defined]


def require_finite(logits: Tensor) -> None:
    """Refuse a model whose logits of clean images are not finite.

    Raises:
        UserError: one is NaN or infinite.
    """
    if not bool(logits.isfinite().all()):
        raise UserError(
            "The model returns NaN or infinite logits on clean images; check its weights and normalisation."
        )


def _usual(logits: Tensor) -> Tensor:
    if logits.is_meta or logits.is_nested or logits.layout is not torch.strided or logits.is_quantized:
        raise UserError(
            f"The model returned {_kind(logits)}; let it return a plain tensor of logits [images, classes]."
        )
    if logits.is_complex():
        raise UserError("The model returned complex numbers, which have no largest; let it return real logits.")
    return logits.float()


def _kind(logits: Tensor) -> str:
    if logits.is_meta:
        return "a tensor without values (on the meta device)"
    if logits.is_nested:
        return "a nested tensor"
    return "a quantized tensor" if logits.is_quantized else f"a sparse tensor ({logits.layout})"


def _tensor(output: Any, depth: int) -> Tensor:
    if isinstance(output, Tensor):
        return output
    named = getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Mapping):
        for name in ("logits", "out", "output"):
            if isinstance(output.get(name), Tensor):
                return output[name]  # type: ignore[no-any-return]
        raise UserError(
            f"The model returned a dict without 'logits'; its keys are {', '.join(map(str, output))}. Wrap the model "
            "so that it returns its logits."
        )
    if isinstance(output, (tuple, list)) and output and depth:
        return _tensor(output[0], depth - 1)
    raise UserError(f"The model returned {type(output).__name__}; wrap it so that it returns a tensor of logits.")
