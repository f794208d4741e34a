"""What differences of logits are measured against.

It is the range of all logits, unless some class is switched off: by a logit of -1e9, say. Then the range says nothing
of the classes that decide.
"""

import torch
from torch import Tensor

_TIMES = 10  # the largest logits that decide; the range of a network without such a class is smaller
_LEAST = 1e-6


def sizes(logits: Tensor) -> Tensor:
    """`[n, K]` what a difference of each of `[n, K]` logits is measured against, above 0.

    The range of all, but no more than ten times the largest logit among the two leading ones of any row, and than the
    logit itself. Values that are not finite count as 0.
    """
    values = torch.where(logits.isfinite(), logits, 0)
    leading = values.topk(min(2, values.shape[1]), dim=1).values.abs().max()
    return torch.maximum(_TIMES * leading, values.abs()).clamp(max=values.max() - values.min()).clamp(min=_LEAST)
