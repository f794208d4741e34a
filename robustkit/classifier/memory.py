"""Answers in parts where memory is short."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rows import Rows

T = TypeVar("T")
R = TypeVar("R", bound=Rows)


def if_it_fits(answer: Callable[[], T]) -> T | None:
    """What `answer` returns; None if it took more memory than there is."""
    try:
        return answer()
    except torch.OutOfMemoryError:
        # The traceback holds on to what was computed; memory is freed only after this block.
        return None


def half_of(rows: int) -> int:
    """As many rows as are tried after an out-of-memory.

    Raises:
        UserError: a single row does not fit into memory.
    """
    if rows < 2:
        raise UserError("The model does not fit into memory even for a single image; use another --device.")
    torch.cuda.empty_cache()
    return rows // 2


def in_parts(answer: Callable[[Tensor], R], numbers: Tensor) -> R:
    """The answers to row numbers `[n]`: at once, or in halves and halves of halves if that takes too much memory.

    Raises:
        UserError: a single row does not fit into memory.
    """
    answers = if_it_fits(lambda: answer(numbers))
    if answers is not None:
        return answers
    half = half_of(len(numbers))
    return Rows.cat([in_parts(answer, numbers[:half]), in_parts(answer, numbers[half:])])
