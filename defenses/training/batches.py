"""What goes into a step of the optimizer and what comes out of it."""

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Some images of a step."""

    x: Tensor  # [B, *S] in [0, 1]
    y: Tensor  # [B] int64
    key: Tensor  # [B] int64 noise streams of the attack
    whole: int = 0  # images of the batch over all processes; 0 for these alone

    @property
    def size(self) -> int:
        """Images of the batch over all processes."""
        return self.whole or len(self.y)


class AttackedBatch(NamedTuple):
    """The same, attacked."""

    x: Tensor
    x_adv: Tensor
    y: Tensor
    share: float  # of the images of the step; over all batches and processes 1
    counted: slice = slice(None)  # images that no other process counts


class Told(NamedTuple):
    """What a step found."""

    loss: float  # mean over its images
    right: int  # images still classified correctly after the inner attack
    images: int
    share: float = 1.0  # that this process answers for


def right_of(logits: Tensor, y: Tensor) -> int:
    """How many of logits `[B, K]` say the class in `y` `[B]`."""
    return int((logits.detach().argmax(1) == y).sum())
