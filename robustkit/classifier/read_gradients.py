"""Queries at which an attack reads no gradient, or only the first ones of several: the others are not computed."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack, MultiGradientSeen, Seen, State
from robustkit.primitives.rows import Rows

Ask = Callable[[Tensor, int], Seen]  # the answers to the rows of these numbers `[n]`, with so many gradients each


def gradients_read(attack: Attack, state: State) -> Tensor:
    """`[B]` int64: how many gradients the attack reads at each row's query.

    Raises:
        UserError: an attack of the user's own does not say, or returns something else.
    """
    counts: object = attack.gradients_read(state)
    if (
        not isinstance(counts, Tensor)
        or counts.shape != state.queries.shape
        or counts.dtype != torch.int64
        or bool((counts < 0).any())
    ):
        raise UserError(
            f"{type(attack).__name__}.gradients_read must return [{len(state)}] of int64, 0 or more for each image, "
            "such as (state.queries > 0).long()."
        )
    return counts


def answered_by_count(counts: Tensor, ask: Ask, query: Tensor) -> Seen:
    """The answers to all rows; gradients that nobody reads are zero.

    Args:
        counts: `[B]` int64, how many gradients of each row are read.
        ask: queries the model.
        query: `[B, *S]`, in whose shape gradients are.
    """
    answers, places = [], []
    for count in sorted(set(counts.tolist())):
        rows = (counts == count).nonzero().flatten()
        answers.append(_filled(ask(rows, count), query))
        places.append(rows)
    return Rows.cat(answers).take(torch.cat(places).argsort())


def _filled(seen: Seen, query: Tensor) -> Seen:
    """The answer with zeros for the gradients that were not computed."""
    if not isinstance(seen, MultiGradientSeen):
        return seen if seen.backwards else replace(seen, grad=query.new_zeros(len(seen), *query.shape[1:]))
    count, missing = len(seen), seen.losses.shape[1] - seen.backwards
    grads = torch.cat([seen.grads, query.new_zeros(count, missing, *query.shape[1:])], 1)
    return replace(seen, grad=grads[:, 0], grads=grads)
