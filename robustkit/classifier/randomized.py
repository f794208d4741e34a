"""A randomized model asked so that its answers repeat, whatever the batch, the order and the moment.

Such a model draws from global generators, so what one image meets depends on all that was asked before it. Here each
image is asked alone, in a batch of its own draws, after the generators were seeded with a number of its own.
Expectation over transformations: Athalye et al. 2018, arXiv:1802.00420, section 4.2.
"""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import State

_REPEATS = 4  # answers compared to find out whether a model is randomized
_TOLERANCE = 1e-4  # of the logits' range: more difference between two answers is no rounding


def seeds(key: Tensor, asked: Tensor) -> list[int]:
    """One seed per row, from the row's noise stream and the number of its query."""
    numbers: list[int] = (noise.keys(1, key, asked) & ((1 << 62) - 1)).tolist()
    return numbers


def reseed(seed: int) -> None:
    """Seed all global generators that a model may draw from; `isolation.untouched` restores them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # models draw from numpy's global generator, if from any


def averaged(answer: Callable[[State], tuple[Tensor, ...]], state: State, draws: int, most: int) -> tuple[Tensor, ...]:
    """What `answer` says of each row, as the mean over `draws` draws; labels by vote; at most `most` rows at once."""
    rows = []
    for row, seed in enumerate(seeds(state.trial.key, state.queries)):
        reseed(seed)
        copies = torch.full((draws,), row, device=state.query.device)
        parts = [answer(state.take(part)) for part in torch.split(copies, most)]
        label, logits, *others = (torch.cat(values) for values in zip(*parts, strict=True))
        label = voted(logits).argmax() if logits.shape[1] else label.mode().values
        rows.append((label, *(values.mean(0) for values in (logits, *others))))
    return tuple(torch.stack(values) for values in zip(*rows, strict=True))


def voted(logits: Tensor) -> Tensor:
    """`[K]` scores of one image's draws `[R, K]`: votes for each class, and below one its mean probability.

    So the largest score is the plurality, and ties fall to the class with more probability.
    """
    votes = torch.zeros_like(logits[0]).index_add(0, logits.argmax(1), torch.ones_like(logits[:, 0]))
    return votes + logits.softmax(1).mean(0) * 0.999


def differ(ask: Callable[[], Tensor], seed: int) -> bool:
    """Whether the same query is answered differently after different seeds."""
    reseed(seed)
    first = ask()
    scale = max(float(first.max() - first.min()), 1e-6)
    for other in range(seed + 1, seed + _REPEATS):
        reseed(other)
        if bool((ask() - first).abs().max() > _TOLERANCE * scale):
            return True
    return False
