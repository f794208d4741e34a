"""A smoothed classifier as an attack meets it: the mean probability over noisy copies, which gradients pass through.

Salman et al. 2019, arXiv:1906.04584, equation 7. Averaging the copies' own gradients instead climbs another function:
there each copy counts the same, here those count most that are about to change sides.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robustkit.classifier.smoothing import ABSTAINS
from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, FeatureAttack, State

_STREAM = 3  # apart from the noise that an attack draws of its own

Forward = Callable[[Tensor], Tensor]


def smoothed(forward: Forward, state: State, sigma: float, count: int) -> Forward:
    """Logarithms of the smoothed classifier's probabilities `[B, K]` at queries `[B, *S]`, from so many copies each.

    Args:
        forward: logits of points.
        state: whose rows the queries are; fresh noise for each of their queries.
        sigma: of the noise.
        count: copies.
    """
    keys = noise.keys(_STREAM, state.trial.key, state.queries).repeat_interleave(count)
    draws = torch.arange(count, device=keys.device).repeat(len(state))
    shift = sigma * noise.normal(keys, draws, state.query.shape[1:]).to(state.query)

    def through_noise(query: Tensor) -> Tensor:
        logits = forward(query.repeat_interleave(count, 0) + shift)
        each = logits.log_softmax(1)
        return each.reshape(-1, count, each.shape[1]).logsumexp(1) - math.log(count)

    return through_noise


def check_askable(attack: Attack) -> None:
    """Check that an attack can query a smoothed classifier.

    Raises:
        UserError: it reads a layer.
    """
    if isinstance(attack, FeatureAttack):
        raise UserError(
            f"{type(attack).__name__} reads a layer, of which a smoothed classifier has one for each noisy copy; leave "
            "it out, or let it ask a --surrogate."
        )


def repeated(state: State, count: int) -> State:
    """Every row so many times, as the copies stand in a batch."""
    return state.take(torch.arange(len(state), device=state.query.device).repeat_interleave(count))


def leading(logits: Tensor, *, count: int) -> Tensor:
    """`[B]` the likeliest class, -1 where its lead is within one standard deviation of so many copies' votes.

    A verdict takes many more copies than a query, so a point is worth one only where it may well hold.
    """
    first, second = logits.exp().topk(2, 1).values.unbind(1)
    clear = (first - second) ** 2 * count >= first + second
    return torch.where(clear, logits.argmax(1), torch.full_like(clear, ABSTAINS, dtype=torch.int64))
