"""One step of the optimizer: attack the current network, then minimize the loss of the adversarial images."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.classifier.logits import logits_of
from robustkit.errors import UserError
from robustkit.models.preprocessing import network_in
from robustkit.nethook.gradients import gradients

from ..inner_attack.crafting import craft
from ..inner_attack.diverged import Diverged
from ..inner_attack.objectives import BatchLoss, Branches, Objective, maximized
from ..inner_attack.specification import InnerAttack, scaled
from ..weights.average import Average
from ..weights.awp import perturbed
from ..weights.batchnorm import modes, statistics_kept
from ..weights.folding import Folded
from ..weights.prior import Prior
from ..weights.split import clean_branch
from .batches import AttackedBatch, Batch, StepReport, count_correct
from .learner import Learner
from .recipe import Recipe
from .replay import Replay
from .team import ALONE, Team


class Stepper:
    """Takes the steps of a training.

    Args:
        model: takes pixels in [0, 1]; in train mode.
        inner: the attack, at full radius.
        objective: what is minimized.
        recipe: the other choices.
        prior: of the weights.
        optimizer: of the weights that learn.
        average: of the weights, or None.
        view: the model with folded BatchNorm, for an attack in eval mode, or None.
        team: the processes that take each step together.
    """

    def __init__(
        self, model: nn.Module, inner: InnerAttack, objective: Objective, recipe: Recipe, prior: Prior,
        optimizer: torch.optim.Optimizer, average: Average | None, view: Folded | None, team: Team = ALONE,
    ) -> None:  # fmt: skip
        self.model, self.network, self.objective, self.recipe = model, network_in(model), objective, recipe
        self.prior, self.optimizer, self.average, self.view = prior, optimizer, average, view
        self.device = next(model.parameters()).device
        self.branches = Branches(self._clean_logits, self.logits)
        self.team, self.learner = team, Learner(team, self.batch_loss)
        self.attack_with(inner)

    def together(self) -> AbstractContextManager[None]:
        """All processes take their steps together while the context lasts; the weights that learn must not change."""
        return self.learner.wrapped(self.learning_weights())

    def step(self, batches: Sequence[Batch], radius: float) -> StepReport:
        """Take one optimizer step on some batches.

        Args:
            batches: their gradients are added up, each weighted by its number of images; each of several processes
                gives its shares of the same batches.
            radius: share of the full one.

        Raises:
            Diverged: the loss or a gradient is NaN or infinite; no weight was changed.
        """
        if self.replay is not None:
            ball = scaled(self.inner.attack, radius).ball
            report = self.replay.step(batches, ball, self.learner, hard=not self.recipe.label_smoothing)
        else:
            report = self._attack_and_accumulate(batches, radius)
        report = self._over_all_processes(report)
        if not math.isfinite(report.loss):
            self.optimizer.zero_grad(set_to_none=True)
            raise Diverged(f"The loss became {report.loss}; lower lr, or clip the gradient.")
        self._update()
        return report

    def attack_with(self, inner: InnerAttack) -> None:
        """Use another inner attack from now on."""
        self.inner = inner
        self.replay = Replay() if inner.replays > 1 else None

    def adversarial(self, batch: Batch, radius: float) -> Tensor:
        """`[B, *S]` adversarial images of a batch, at a share of the radius; the network's modes are restored."""
        if not self.objective.uses_attack or radius == 0:
            return batch.x
        with modes(self.model, self.recipe.attack_bn):
            objective = maximized(self.objective, self.branches.clean, batch.x)
            attack = scaled(self.inner.attack, radius)
            return craft(self.attacked_network(), attack, batch.x, batch.y, batch.key, objective)

    def attacked_network(self) -> Callable[[Tensor], Tensor]:
        """What answers the attack: the folded view if there is one, with the weights as they are now."""
        view = self.view
        if view is None or self.recipe.attack_bn != "eval":
            return self.logits
        view.refresh()
        return lambda x: self._logits_from(view, x)

    def logits(self, x: Tensor) -> Tensor:
        """`[B, K]` fp32, with gradients in whatever requires them."""
        return self._logits_from(self.model, x)

    def batch_loss(self, part: AttackedBatch) -> BatchLoss:
        """The loss of a batch whose adversarial images are made.

        Raises:
            UserError: it depends on no weight that learns.
        """
        result = self.objective.batch_loss(self.branches, part.x, part.x_adv, part.y, self.recipe.label_smoothing)
        if not result.loss.requires_grad:
            raise _no_learning_weight(self.recipe)
        return result

    def learning_weights(self) -> list[nn.Parameter]:
        """The weights that are not frozen."""
        return [weight for weight in self.network.parameters() if weight.requires_grad]

    def _logits_from(self, network: Callable[[Tensor], object], x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last) if self.recipe.channels_last and x.dim() == 4 else x
        with self._cast():
            return logits_of(network(x), x).float()

    def _clean_logits(self, x: Tensor) -> Tensor:
        with clean_branch(self.network):
            return self.logits(x)

    def _cast(self) -> AbstractContextManager[Any]:
        if not self.recipe.bf16:
            return nullcontext()
        # The cache lives as long as the outermost autocast context, which is the whole training: every step would use
        # bf16 copies of the first step's weights.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _attack_and_accumulate(self, batches: Sequence[Batch], radius: float) -> StepReport:
        images = sum(batch.size for batch in batches)
        parts = [self.learner.part(batch, self.adversarial(batch, radius), images) for batch in batches]
        if not self.recipe.awp:
            return self._accumulate(parts, images)
        with perturbed(self.learning_weights(), self._ascent(parts), self.recipe.awp):
            return self._accumulate(parts, images)

    def _accumulate(self, parts: Sequence[AttackedBatch], images: int) -> StepReport:
        """Add the gradient of all parts to each `.grad`."""
        loss, correct = 0.0, 0
        for part in parts:
            with self.learner.turn(part, last=part is parts[-1]) as result:
                pass
            loss += result.loss.item() * part.share
            correct += count_correct(result.logits[part.counted], part.y[part.counted])
        return StepReport(loss, correct, images, sum(part.share for part in parts))

    def _over_all_processes(self, report: StepReport) -> StepReport:
        """The sum of all processes' reports; their BatchNorm statistics are equal afterwards."""
        if self.team.alone:
            return report
        self.team.synchronize_buffers(self.network, report.share)
        loss, correct = self.team.sum_numbers(report.loss, report.correct)
        return StepReport(loss, round(correct), report.images)

    def _ascent(self, parts: Sequence[AttackedBatch]) -> list[Tensor | None]:
        """The gradient of the loss in the weights that learn; weights and statistics stay as they are."""
        weights = self.learning_weights()
        total: list[Tensor | None] = [None] * len(weights)
        with statistics_kept(self.network):
            for part in parts:
                grads = gradients(self.batch_loss(part).loss * part.share, weights)
                total = [_sum(old, new) for old, new in zip(total, grads, strict=True)]
        return self.team.gradients(weights, total)

    def _update(self) -> None:
        recipe, weights = self.recipe, self.learning_weights()
        grads = [weight.grad for weight in weights if weight.grad is not None]
        if not grads:
            raise _no_learning_weight(recipe)
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


def _no_learning_weight(recipe: Recipe) -> UserError:
    return UserError(f"The logits depend on no weight that learns under freeze={recipe.freeze!r}; leave others free.")


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first if second is None else first + second
