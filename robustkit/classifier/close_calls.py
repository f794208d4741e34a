"""Whether a verdict holds against rounding: in a forward of any other batch size.

The logits of one point differ in their last bits with the size of the batch and the place in it. Where two classes are
closer than that, the caller's own forward may say another class than the verdict. So a point that breaks an image by a
hair is queried again in batches of several sizes, and counts only if its lead is larger than what rounding moves.
Most leads are so much larger that a few sizes show it.
"""

import torch
from torch import Tensor

from robustkit.classifier.reference import Reference

_FEW, _MORE = (1, 3, 16), (2, 5, 8, 33, 64)
_CLOSE = 1e3  # units of rounding, of the largest logit: differences between batch sizes were seen up to 40
_CLOSE_MOST = 0.1  # of the largest logit, for weights of 8 or 16 bits
_SAFETY = 4  # times the largest difference that is seen
_SAFETY_OF_FEW = 20  # the same where few sizes were tried
_LEAST, _LEAST_COARSE = 8, 2  # units of rounding, in case that no difference is seen; of 32 and 64 bits, and of fewer
_TIMES = 100  # the two logits that decide: a class that is switched off may have a logit of -1e9


def is_sure(reference: Reference, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
    """Whether `label` leads over `other` by more than rounding.

    Args:
        reference: the model.
        point: `[*S]` in [0, 1].
        scores: `[K]` its logits there.
        label: the class of the verdict.
        other: the likeliest class that would change the verdict.
    """
    unit = torch.finfo(reference.input.dtype).eps
    largest = float(scores.abs().max())
    lead = float(scores[label] - scores[other])
    if lead > min(_CLOSE * unit, _CLOSE_MOST) * largest:
        return True
    scale = min(largest, _TIMES * float(scores[[label, other]].abs().max()))
    least = (_LEAST if unit < 1e-6 else _LEAST_COARSE) * unit * scale
    if lead <= least:
        return False
    moved = max(_moved(reference, point, size, lead, label, other) for size in _FEW)
    if lead > _SAFETY_OF_FEW * max(moved, least):
        return True
    return lead > _SAFETY * max(moved, *(_moved(reference, point, size, lead, label, other) for size in _MORE))


def _moved(reference: Reference, point: Tensor, size: int, lead: float, label: int, other: int) -> float:
    """How far a batch of `size` moves the lead in its places."""
    logits = reference.forward(point.expand(size, *point.shape))
    return float((logits[:, label] - logits[:, other] - lead).abs().max())
