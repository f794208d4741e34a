"""Answers in parts where memory is short."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rows import Rows

R = TypeVar("R", bound=Rows)


def in_parts(answer: Callable[[Tensor], R], numbers: Tensor) -> R:
    """The answers to row numbers `[n]`: at once, or in halves and halves of halves if that takes too much memory.

    Raises:
        UserError: a single row does not fit into memory.
    """
    answers = _at_once(answer, numbers)
    if answers is not None:
        return answers
    if len(numbers) == 1:
        raise no_memory()
    torch.cuda.empty_cache()
    half = len(numbers) // 2
    return Rows.cat([in_parts(answer, numbers[:half]), in_parts(answer, numbers[half:])])


def no_memory() -> UserError:
    """The error where a single row does not fit into memory."""
    return UserError("The model does not fit into memory even for a single image; use another --device.")


def _at_once(answer: Callable[[Tensor], R], numbers: Tensor) -> R | None:
    try:
        return answer(numbers)
    except torch.OutOfMemoryError:
        # The traceback holds on to what was computed; memory is freed only after this block.
        return None
