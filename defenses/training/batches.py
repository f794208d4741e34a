"""What goes into a step of the optimizer and what comes out of it."""

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Some images of a step."""

    x: Tensor  # [B, *S] in [0, 1]
    y: Tensor  # [B] int64
    key: Tensor  # [B] int64 noise streams of the attack
    whole: int = 0  # images of the batch over all processes; 0 if this process has all of them

    @property
    def size(self) -> int:
        """Images of the batch over all processes."""
        return self.whole or len(self.y)


class AttackedBatch(NamedTuple):
    """The same with adversarial images."""

    x: Tensor
    x_adv: Tensor
    y: Tensor
    share: float  # of the images of the step; sums to 1 over all batches and processes
    counted: slice = slice(None)  # images that no other process counts


class StepReport(NamedTuple):
    """What a step of the optimizer measured."""

    loss: float  # mean over its images
    correct: int  # images still classified correctly after the inner attack
    images: int
    share: float = 1.0  # of the images that this process is responsible for


def count_correct(logits: Tensor, y: Tensor) -> int:
    """How many of the logits `[B, K]` are largest at the class in `y` `[B]`."""
    return int((logits.detach().argmax(1) == y).sum())
