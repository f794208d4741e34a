"""Free adversarial training: one backward pass gives the gradients in the weights and in the images.

Shafahi et al. 2019, arXiv:1904.12843, algorithm 1: several optimizer steps are taken on every batch, and the
perturbation is carried over to the next step and to the next batch. Ours differs: the perturbed image is also clipped
to [0, 1], what this cuts off is not carried over (the authors' code keeps it for the next image), and its gradient uses
hard labels even if the weights' loss smooths them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.nethook.gradients import gradients
from robustkit.primitives.ball import Ball

from .batches import Batch, StepReport, count_correct
from .learner import Learner
from .team import Team


class Replay:
    """The perturbation that free training carries over: `[B, *S]` for the B images of a step over all processes."""

    def __init__(self) -> None:
        self.change: Tensor | None = None  # None before the first step

    def step(self, batches: Sequence[Batch], ball: Ball, learner: Learner, hard: bool) -> StepReport:
        """Add the gradient of all batches to each `.grad`, and update the perturbation of their images.

        Args:
            batches: of one step; if they have fewer images than before, the rest of the perturbation stays.
            ball: the threat at the current radius.
            learner: computes the loss.
            hard: whether the loss uses hard labels; if not, one more backward pass is taken.
        """
        images, done = sum(batch.size for batch in batches), 0
        if self.change is None:
            first = batches[0].x
            self.change = first.new_zeros(images, *first.shape[1:])
        loss, correct, share = 0.0, 0, 0.0
        own = []
        for batch in batches:
            # An image has the same place in the step in every process.
            places = range(done, done + batch.size)
            done += batch.size
            rows = _slice(places[learner.team.share(batch.size)])
            own.append(_slice(places[learner.team.own(batch.size)]))
            query = ball.project(batch.x, batch.x + self.change[rows]).requires_grad_(True)
            part = learner.part(batch, query, images)
            grads: tuple[Tensor, ...] = ()
            with learner.turn(part, last=batch is batches[-1]) as result:
                if not hard:
                    hard_loss = F.cross_entropy(result.logits, batch.y, reduction="sum")
                    grads = gradients(hard_loss, [query], retain_graph=True)
            grad = grads[0] if grads else query.grad
            assert grad is not None
            with torch.no_grad():
                self.change[rows] = ball.climb(batch.x, query, grad, ball.eps) - batch.x
            loss += result.loss.item() * part.share
            correct += count_correct(result.logits[part.counted], batch.y[part.counted])
            share += part.share
        if not learner.team.alone:
            self._gather(own, images, learner.team)
        return StepReport(loss, correct, images, share)

    def _gather(self, own: Sequence[slice], images: int, team: Team) -> None:
        """Take each image's perturbation from the process that is responsible for it."""
        assert self.change is not None
        own_changes = torch.zeros_like(self.change[:images])
        for rows in own:
            own_changes[rows] = self.change[rows]
        self.change[:images] = team.sum_tensor(own_changes)


def _slice(places: range) -> slice:
    return slice(places.start, places.stop, places.step)
