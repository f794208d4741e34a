"""Whether every row of a batch gets random numbers of its own.

Many defenses draw once per forward: the size of a random resizing, the member of an ensemble, the blocks that are
skipped. Copies of an image in one batch are then one draw, however many they are, and must be sent one by one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from robustkit.classifier.generators import reseed

# Many forwards, so that a switch which is thrown in one of twenty is thrown in some of them.
_FORWARDS, _COPIES = 64, 2
# A false alarm makes the model slower and nothing else, so the chance of one need not be tiny.
_LEVEL = 1e-3


def rows_share_draws(forward: Callable[[Tensor], Tensor], images: Tensor, seed: int) -> bool:
    """Whether copies of an image agree within a forward more than between forwards.

    Args:
        forward: logits of a batch.
        images: `[n, *S]`, each asked in batches of its own copies.
        seed: of the global generators.
    """
    reseed(seed)
    return any(_shared(_answers(forward, image), _LEVEL / len(images)) for image in images)


def _answers(forward: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    """`[forwards, copies, K]` logits, float64."""
    copies = image.unsqueeze(0).expand(_COPIES, *image.shape)
    return torch.stack([forward(copies) for _ in range(_FORWARDS)]).double()


def _shared(answers: Tensor, level: float) -> bool:
    """An analysis of variance with the forward as its one factor, for each class."""
    from scipy.stats import f

    forwards, copies, classes = answers.shape
    means = answers.mean(1, keepdim=True)
    between = copies * (means - means.mean(0, keepdim=True)).pow(2).sum((0, 1)) / (forwards - 1)
    within = (answers - means).pow(2).sum((0, 1)) / (forwards * (copies - 1))
    bound = float(f.isf(level / classes, forwards - 1, forwards * (copies - 1)))
    # Rounding leaves variances of about 1e-14 times the squares where all answers are equal.
    return bool((between > bound * within + 1e-10 * answers.pow(2).mean((0, 1))).any())
