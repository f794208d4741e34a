"""Free adversarial training: one backward pass gives the gradients in the weights and in the images.

Shafahi et al. 2019, arXiv:1904.12843, algorithm 1: every batch is learnt from several times, and the change of the
images is carried over, to the next step and to the next batch. Ours differs: the change is also cut to [0, 1], and
labels are hard for it, however smooth the weights' own are.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.threat import Ball

from .batches import Attacked, Batch, Told, right_of
from .objectives import Learnt


class Replay:
    """The change of the images, `[B, *S]` with B the images of a step, none before the first."""

    def __init__(self) -> None:
        self.change: Tensor | None = None

    def step(self, batches: Sequence[Batch], ball: Ball, learn: Callable[[Attacked], Learnt], hard: bool) -> Told:
        """Add the gradient of all batches to each `.grad`, and move the change of their images.

        Args:
            batches: of one step; fewer images than before leave the rest of the change as it is.
            ball: the threat now.
            learn: the loss of images.
            hard: whether its labels are; else one more backward pass is taken.
        """
        images, done = sum(len(batch.y) for batch in batches), 0
        if self.change is None:
            self.change = torch.zeros_like(torch.cat([batch.x for batch in batches]))
        loss, right = 0.0, 0
        for x, y, _ in batches:
            rows = slice(done, done + len(y))
            done += len(y)
            query = ball.project(x, x + self.change[rows]).requires_grad_(True)
            learnt = learn(Attacked(x, query, y, len(y) / images))
            own = None if hard else F.cross_entropy(learnt.logits, y, reduction="sum")
            grads = () if own is None else torch.autograd.grad(own, query, retain_graph=True)
            (learnt.loss * (len(y) / images)).backward()  # type: ignore[no-untyped-call]
            grad = grads[0] if grads else query.grad
            assert grad is not None
            with torch.no_grad():
                self.change[rows] = ball.climb(x, query, grad, ball.eps) - x
            loss += learnt.loss.item() * len(y) / images
            right += right_of(learnt.logits, y)
        return Told(loss, right, images)
