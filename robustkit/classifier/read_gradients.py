"""Queries at which an attack reads no gradient, or only the first ones of several: the others are not computed."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from robustkit.primitives.protocol import MultiGradientSeen, Seen
from robustkit.primitives.rows import Rows

Ask = Callable[[Tensor, int], Seen]  # the answers to the rows of these numbers `[n]`, with so many gradients each


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
