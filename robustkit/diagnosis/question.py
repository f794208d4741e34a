"""What a diagnosis asks of a classifier, in batches, so that each image's numbers are its own."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.classifier import randomized as draws
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.logits import logits_of
from robustkit.primitives import noise
from robustkit.primitives.threat import Ball


@dataclass(frozen=True)
class Question:
    """Images in [0, 1], their labels, the ball that moves stay in, and the loss."""

    classifier: Classifier
    x: Tensor
    y: Tensor
    ball: Ball
    loss: str
    seed: int
    batch_size: int

    @cached_property
    def moved(self) -> Tensor:
        """Each image after a random move to the rim of its ball, drawn from the image itself, not from its place."""
        names = [zlib.crc32(image.cpu().contiguous().numpy().tobytes()) for image in self.x]
        keys = noise.keys(self.seed, torch.tensor(names, dtype=torch.int64, device=self.x.device))
        direction = noise.normal(keys, 0, tuple(self.x.shape[1:])).to(self.x)
        return self.ball.project(self.x, self.x + self.ball.eps * self.ball.steepest(direction, self.x))

    def parts(self) -> Iterator["Question"]:
        """The same in batches."""
        for start in range(0, len(self.x), self.batch_size):
            yield self.part(slice(start, start + self.batch_size))

    def part(self, rows: slice) -> "Question":
        """The same about some of the images."""
        return replace(self, x=self.x[rows], y=self.y[rows])

    def ask(self, points: Tensor) -> Tensor:
        """Logits, with a graph where gradients are on; draws of the global generators held fixed."""
        draws.reseed(self.seed)
        return logits_of(self.classifier.model(self.classifier.input.fed(points)))


def kept(values: Tensor) -> Tensor:
    """Figures of images as they are put together later."""
    return values.detach().cpu().double()
