"""Models whose last output means that the image is rejected, such as a detector behind a classifier.

A rejected adversarial example is no success: the attacker must reach a wrong class whose logit is above that of the
true class and above that of the rejection. So attacks see one logit for both, the larger one, in the place of the true
class; their losses, margins and boundaries are then those of the attacker's task. Carlini & Wagner 2017,
arXiv:1705.07263, give a detector a logit beside those of the classes, and attack both as one network.
"""

import torch
from torch import Tensor

from robustkit.statistics.randomized_smoothing import ABSTAINS


def of_classes(scores: Tensor) -> Tensor:
    """`[n, K]` the scores of the classes, of `[n, K + 1]`."""
    return scores[:, :-1]


def labels(scores: Tensor) -> Tensor:
    """`[n]` int64 the classes of the largest scores of `[n, K + 1]`; -1 where that is the rejection's."""
    label = scores.argmax(1)
    return torch.where(label == scores.shape[1] - 1, ABSTAINS, label)


def for_attacker(logits: Tensor, y: Tensor) -> Tensor:
    """`[n, K]` logits of `[n, K + 1]` as an attacker needs them: the rejection is as good for the true class as itself.

    Args:
        logits: the last one is that of the rejection.
        y: `[n]` int64 true classes.
    """
    classes, place = of_classes(logits), y.unsqueeze(1)
    return classes.scatter(1, place, classes.gather(1, place).maximum(logits[:, -1:]))
