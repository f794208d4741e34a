"""Answers in parts where memory is short."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rows import Rows

R = TypeVar("R", bound=Rows)


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
    # Memory is freed only after this block: until then the traceback holds on to what was computed.
    with suppress(torch.OutOfMemoryError):
        return answer(numbers)
    half = half_of(len(numbers))
    return Rows.cat([in_parts(answer, numbers[:half]), in_parts(answer, numbers[half:])])
