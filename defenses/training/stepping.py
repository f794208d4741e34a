"""One step of the optimizer: attack the network as it is, and learn from what broke it."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.classifier.logits import logits_of
from robustkit.errors import UserError
from robustkit.models.preprocessing import network_in

from ..inner_attack.crafting import crafted
from ..inner_attack.diverged import Diverged
from ..inner_attack.objectives import Asked, Climb, Learnt, Objective
from ..inner_attack.specification import Inner, scaled
from ..weights.average import Average
from ..weights.awp import perturbed
from ..weights.batchnorm import modes, statistics_kept
from ..weights.folding import Folded
from ..weights.prior import Prior
from ..weights.split import clean_branch
from .batches import AttackedBatch, Batch, Told, right_of
from .learner import Learner
from .parallel import ALONE, Team
from .recipe import Recipe
from .replay import Replay


class Stepper:
    """Takes the steps of a training.

    Args:
        model: takes pixels in [0, 1]; in train mode.
        inner: the attack, at full radius.
        goal: what is minimised.
        recipe: the other choices.
        prior: of the weights.
        optimizer: of those that learn.
        average: of the weights, or none.
        view: the model folded, for an attack in eval mode, or none.
        team: the processes that take each step together.
    """

    def __init__(
        self, model: nn.Module, inner: Inner, goal: Objective, recipe: Recipe, prior: Prior,
        optimizer: torch.optim.Optimizer, average: Average | None, view: Folded | None, team: Team = ALONE,
    ) -> None:  # fmt: skip
        self.model, self.network, self.goal, self.recipe = model, network_in(model), goal, recipe
        self.prior, self.optimizer, self.average, self.view = prior, optimizer, average, view
        self.device = next(model.parameters()).device
        self.ask = Asked(self._clean, self.logits)
        self.team, self.learner = team, Learner(team, self._loss)
        self.attack_with(inner)

    def together(self) -> AbstractContextManager[None]:
        """Steps are taken by all processes while the context lasts, in which the same weights learn."""
        return self.learner.wrapped(self._learning())

    def step(self, batches: Sequence[Batch], radius: float) -> Told:
        """Learn from some batches as from one.

        Args:
            batches: their gradients are added up, each weighted by its number of images; of several processes, each
                gives its shares of the same batches.
            radius: share of the full one.

        Raises:
            Diverged: the loss or a gradient is NaN or infinite; no weight was moved.
        """
        if self.replay is not None:
            ball = scaled(self.inner.attack, radius).ball
            told = self.replay.step(batches, ball, self.learner, hard=not self.recipe.label_smoothing)
        else:
            told = self._learnt(batches, radius)
        told = self._of_all(told)
        if not math.isfinite(told.loss):
            self.optimizer.zero_grad(set_to_none=True)
            raise Diverged(f"The loss became {told.loss}; lower lr, or clip the gradient.")
        self._update()
        return told

    def attack_with(self, inner: Inner) -> None:
        """Go on with another inner attack."""
        self.inner = inner
        self.replay = Replay() if inner.replays > 1 else None

    def adversarial(self, batch: Batch, radius: float) -> Tensor:
        """`[B, *S]` the images of a batch, attacked at a share of the radius; the network's modes are put back."""
        if not self.goal.attacks or radius == 0:
            return batch.x
        with modes(self.model, self.recipe.attack_bn):
            climb: Climb | None = None
            if self.goal.asks_clean:
                with torch.no_grad():
                    climb = self.goal.climb(self.ask.clean(batch.x))
            attack = scaled(self.inner.attack, radius)
            return crafted(self._searched(), attack, batch.x, batch.y, batch.key, climb)

    def logits(self, x: Tensor) -> Tensor:
        """`[B, K]` fp32, with gradients in whatever requires them."""
        return self._of(self.model, x)

    def _of(self, network: Callable[[Tensor], object], x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last) if self.recipe.channels_last and x.dim() == 4 else x
        with self._cast():
            return logits_of(network(x)).float()

    def _clean(self, x: Tensor) -> Tensor:
        with clean_branch(self.network):
            return self.logits(x)

    def _searched(self) -> Callable[[Tensor], Tensor]:
        view = self.view
        if view is None or self.recipe.attack_bn != "eval":
            return self.logits
        view.refresh()
        return lambda x: self._of(view, x)

    def _cast(self) -> AbstractContextManager[Any]:
        if not self.recipe.bf16:
            return nullcontext()
        # Its cache lives as long as the outermost autocast, which is the whole training: all steps would be learnt
        # from bf16 copies of the first step's weights.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _learnt(self, batches: Sequence[Batch], radius: float) -> Told:
        images = sum(batch.size for batch in batches)
        parts = [self.learner.part(batch, self.adversarial(batch, radius), images) for batch in batches]
        if not self.recipe.awp:
            return self._gradient(parts, images)
        with perturbed(self._learning(), self._ascent(parts), self.recipe.awp):
            return self._gradient(parts, images)

    def _gradient(self, parts: Sequence[AttackedBatch], images: int) -> Told:
        """Add the gradient of all parts to each `.grad`."""
        loss, right = 0.0, 0
        for part in parts:
            with self.learner.turn(part, last=part is parts[-1]) as learnt:
                pass
            loss += learnt.loss.item() * part.share
            right += right_of(learnt.logits[part.counted], part.y[part.counted])
        return Told(loss, right, images, sum(part.share for part in parts))

    def _of_all(self, told: Told) -> Told:
        """What all processes found together, whose statistics are then equal."""
        if self.team.alone:
            return told
        self.team.blend(self.network, told.share)
        loss, right = self.team.added(told.loss, told.right)
        return Told(loss, round(right), told.images)

    def _loss(self, part: AttackedBatch) -> Learnt:
        learnt = self.goal.learnt(self.ask, part.x, part.x_adv, part.y, self.recipe.label_smoothing)
        if not learnt.loss.requires_grad:
            raise _without_effect(self.recipe)
        return learnt

    def _ascent(self, parts: Sequence[AttackedBatch]) -> list[Tensor | None]:
        """The loss's gradient in the weights that learn, without moving anything."""
        weights = self._learning()
        total: list[Tensor | None] = [None] * len(weights)
        with statistics_kept(self.network):
            for part in parts:
                grads = torch.autograd.grad(self._loss(part).loss * part.share, weights, allow_unused=True)
                total = [_sum(old, new) for old, new in zip(total, grads, strict=True)]
        return self.team.gradients(weights, total)

    def _update(self) -> None:
        recipe, weights = self.recipe, self._learning()
        grads = [weight.grad for weight in weights if weight.grad is not None]
        if not grads:
            raise _without_effect(recipe)
        length = nn.utils.get_total_norm(grads)
        if not bool(length.isfinite()):
            self.optimizer.zero_grad(set_to_none=True)
            raise Diverged("The gradient became NaN or infinite; lower lr, or clip the gradient.")
        if recipe.clip is not None:
            nn.utils.clip_grads_with_norm_(weights, recipe.clip, length)
        if recipe.optimizer == "adamw":
            self.prior.shrink(self.network, self.optimizer.param_groups[0]["lr"])
        else:
            self.prior.add_to(self.network)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.network)

    def _learning(self) -> list[nn.Parameter]:
        return [weight for weight in self.network.parameters() if weight.requires_grad]


def _without_effect(recipe: Recipe) -> UserError:
    return UserError(f"The logits depend on no weight that learns under freeze={recipe.freeze!r}; leave others free.")


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first if second is None else first + second
