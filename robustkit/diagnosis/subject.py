"""What a diagnosis examines: a classifier with images, labels, the ball of perturbations, a loss and a seed."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.generators import reseed
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.logits import logits_of
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball


@dataclass(frozen=True)
class Subject:
    """A classifier under diagnosis, and everything that its measurements depend on."""

    classifier: Classifier
    x: Tensor  # [N, *S] in [0, 1]
    y: Tensor  # [N] true classes
    ball: Ball
    loss: str
    seed: int
    batch_size: int

    @cached_property
    def perturbed(self) -> Tensor:
        """`[N, *S]` each image after a random move to the border of its ball.

        The direction depends on the image's values, not on its place in the batch.
        """
        hashes = [zlib.crc32(image.cpu().contiguous().numpy().tobytes()) for image in self.x]
        keys = noise.keys(self.seed, torch.tensor(hashes, dtype=torch.int64, device=self.x.device))
        direction = noise.normal(keys, 0, tuple(self.x.shape[1:])).to(self.x)
        return self.ball.project(self.x, self.x + self.ball.eps * self.ball.steepest(direction, self.x))

    def batches(self) -> Iterator["Subject"]:
        """The same with one batch of the images at a time."""
        for start in range(0, len(self.x), self.batch_size):
            yield self.subset(slice(start, start + self.batch_size))

    def subset(self, rows: slice) -> "Subject":
        """The same with some of the images."""
        return replace(self, x=self.x[rows], y=self.y[rows])

    def logits(self, points: Tensor) -> Tensor:
        """Logits of the model itself, with a graph if gradients are on; every call starts from the same seed."""
        reseed(self.seed)
        return logits_of(self.classifier.model(self._input.fed(points)), points)

    @cached_property
    def _input(self) -> InputFormat:
        return self.classifier.input_format()


def as_float64(values: Tensor) -> Tensor:
    """Per-image numbers in the form in which batches are put together: float64 on the CPU, without graph."""
    return values.detach().cpu().double()
