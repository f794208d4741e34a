"""Free adversarial training: one backward pass gives the gradients in the weights and in the images.

Shafahi et al. 2019, arXiv:1904.12843, algorithm 1: every batch is learnt from several times, and the change of the
images is carried over, to the next step and to the next batch. Ours differs: the change is also cut to [0, 1], and
labels are hard for it, however smooth the weights' own are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.primitives.threat import Ball

from .batches import Batch, Told, right_of
from .learner import Learner
from .parallel import Team


class Replay:
    """The change of the images, `[B, *S]` with B the images of a step over all processes, none before the first."""

    def __init__(self) -> None:
        self.change: Tensor | None = None

    def step(self, batches: Sequence[Batch], ball: Ball, learner: Learner, hard: bool) -> Told:
        """Add the gradient of all batches to each `.grad`, and move the change of their images.

        Args:
            batches: of one step; fewer images than before leave the rest of the change as it is.
            ball: the threat now.
            learner: of the loss.
            hard: whether its labels are; else one more backward pass is taken.
        """
        images, done = sum(batch.size for batch in batches), 0
        if self.change is None:
            first = batches[0].x
            self.change = first.new_zeros(images, *first.shape[1:])
        loss, right, share = 0.0, 0, 0.0
        own = []
        for batch in batches:
            # An image keeps its place in the step, whatever process learns from it.
            places = range(done, done + batch.size)
            done += batch.size
            rows = _slice(places[learner.team.share(batch.size)])
            own.append(_slice(places[learner.team.own(batch.size)]))
            query = ball.project(batch.x, batch.x + self.change[rows]).requires_grad_(True)
            part = learner.part(batch, query, images)
            grads: tuple[Tensor, ...] = ()
            with learner.turn(part, last=batch is batches[-1]) as learnt:
                if not hard:
                    hard_loss = F.cross_entropy(learnt.logits, batch.y, reduction="sum")
                    grads = torch.autograd.grad(hard_loss, query, retain_graph=True)
            grad = grads[0] if grads else query.grad
            assert grad is not None
            with torch.no_grad():
                self.change[rows] = ball.climb(batch.x, query, grad, ball.eps) - batch.x
            loss += learnt.loss.item() * part.share
            right += right_of(learnt.logits[part.counted], batch.y[part.counted])
            share += part.share
        if not learner.team.alone:
            self._gather(own, images, learner.team)
        return Told(loss, right, images, share)

    def _gather(self, own: Sequence[slice], images: int, team: Team) -> None:
        """Take each image's change from the process that answers for it."""
        assert self.change is not None
        mine = torch.zeros_like(self.change[:images])
        for rows in own:
            mine[rows] = self.change[rows]
        self.change[:images] = team.total(mine)


def _slice(places: range) -> slice:
    return slice(places.start, places.stop, places.step)
