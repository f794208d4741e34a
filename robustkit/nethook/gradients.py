"""`torch.autograd.grad`, with an error that names the fix where a checkpoint prevents it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robustkit.nethook.errors import ReentrantCheckpointError


def gradients(
    outputs: Tensor,
    inputs: Sequence[Any],
    grad_outputs: Tensor | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to tensors or gradient edges; None where there is none.

    Raises:
        ReentrantCheckpointError: the graph contains a re-entrant checkpoint, which only allows `.backward()`.
    """
    try:
        return torch.autograd.grad(
            outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
        )
    except RuntimeError as error:
        # torch raises no class of its own.
        if "use_reentrant=True" not in str(error):
            raise
    raise ReentrantCheckpointError(
        "The model runs layers under re-entrant checkpointing, where no gradient with respect to the input can be "
        "computed; call torch.utils.checkpoint.checkpoint with use_reentrant=False, or turn its checkpointing off."
    )


def gradients_or_zeros(
    outputs: Tensor, inputs: Sequence[Tensor], grad_outputs: Tensor | None = None, *, retain_graph: bool | None = None
) -> list[Tensor]:
    """The gradients of `outputs` with respect to tensors; zeros where there is none, or no graph at all."""
    zeros = [torch.zeros_like(part) for part in inputs]
    if not outputs.requires_grad:
        return zeros
    found = gradients(outputs, inputs, grad_outputs, retain_graph=retain_graph)
    return [zero if grad is None else grad for zero, grad in zip(zeros, found, strict=True)]
