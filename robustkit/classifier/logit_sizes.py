"""What differences of logits are measured against.

It is the range of all logits, unless some class is switched off: by a logit of -1e9, say. Then the range says nothing
of the classes that decide. And a network in 16 bits rounds its logits, whatever their type says.
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


def units(logits: Tensor) -> list[float]:
    """`[n]` to which share of their size the logits `[n, K]` of each row are rounded, if all are numbers of 16 bits.

    0 where they are not: then rounding is that of their type, or smaller than anything that is asked of it.
    """
    found = torch.zeros(len(logits), device="cpu")
    for kind in (torch.float16, torch.bfloat16):  # the second also rounds what the first can hold
        rounded = (logits.to(kind).to(logits.dtype) == logits).all(1).cpu()
        found[rounded] = torch.finfo(kind).eps
    return found.tolist()
