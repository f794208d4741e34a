"""The course of a training: epochs of steps, each epoch judged on validation images, the best one kept.

Order, noise and dropout are functions of (seed, epoch, step), so a killed training resumes from its last checkpoint
bit for bit.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from robustkit.classifier.isolation import exact_arithmetic
from robustkit.data import Dataset, pick
from robustkit.errors import UserError
from robustkit.host.alone import alone
from robustkit.host.notebook import Summarised, share
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.models.preprocessing import network_in
from robustkit.nethook.restore import restored_random_state
from robustkit.primitives import registry

from ..inner_attack.diverged import Diverged
from ..inner_attack.objectives import build_objective
from ..inner_attack.specification import InnerAttack, stronger
from ..weights.batchnorm import norms_of, recalibrate
from ..weights.fisher import fisher
from ..weights.freezing import chosen, ever_free, frozen_names
from ..weights.prior import Prior, prior
from . import guards
from .batches import Batch
from .checks import checked_network
from .first_answers import FirstAnswers
from .identity import first_difference, identity_of, shared_settings
from .images import SEEDS_APART, TrainingImages, on_device
from .progress import TrainingCheckpoint, TrainingProgress, copied, is_finished, put_back, resume
from .recipe import Recipe
from .schedule import radius_share, rate
from .selection import Judge, ValidationScore
from .setup import build_stepper, frozen_in, new_average, prepared_network
from .team import ALONE, Team

_VALIDATION_IMAGES = 2000  # at most: the standard error of a share is then one point
_STATISTICS_IMAGES = 2048  # for recalculated BatchNorm statistics
_FISHER_IMAGES = 256
_CHECKPOINT_SECONDS = 60.0  # between two checkpoints within an epoch
_TRIAL_IMAGES = 8  # on which the attack is tried before the training
_MOST_ROLL_BACKS = 2
_PROCESSES_APART = 0x9E3779B1  # between the random streams of two processes: a torch generator on a CPU takes 32 bits


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Summarised):
    """The result of a fine-tuning."""

    model: nn.Module  # the caller's own, with the weights of the best epoch, in eval mode
    history: pd.DataFrame  # one row per epoch; "seconds" are those of the training without validation
    start: ValidationScore  # on validation images, before the training
    best: ValidationScore  # of the epoch that was kept
    best_epoch: int  # 0 is the start itself
    status: str  # "finished", "stopped early" or "collapsed"
    notes: tuple[str, ...]
    recipe: Recipe

    def summary(self) -> dict[str, str]:
        """Validation accuracies before and after."""
        clean, worst = ((getattr(self.start, name), getattr(self.best, name)) for name in ("clean", "worst"))
        return {
            "network": type(self.model).__name__, "status": self.status,
            "epochs": f"{len(self.history)}, the best is {self.best_epoch}",
            "clean (validation)": f"{share(clean[0])} before, {share(clean[1])} after",
            "robust (validation)": f"{share(worst[0])} before, {share(worst[1])} after",
        }  # fmt: skip


class Training:
    """One fine-tuning, from its start or from its checkpoint.

    Args:
        model: takes pixels in [0, 1]; it is changed.
        data: training images.
        held_out: validation images.
        inner: the attack, at full radius.
        recipe: all other choices.
        folder: of the checkpoint, or None.
        watch: receives the progress.
        team: the processes that train together. The first one writes and reports; everything else is done by all.
    """

    def __init__(
        self, model: nn.Module, data: Dataset, held_out: Dataset, inner: InnerAttack, recipe: Recipe,
        folder: Path | None, watch: ProgressWatch, team: Team = ALONE,
    ) -> None:  # fmt: skip
        self.objective = build_objective(recipe.objective)
        checked_network(model, data, held_out, recipe, team.size)
        self.model, self.network = model, network_in(model)
        self.device = next(model.parameters()).device
        self.data, self.held_out, self.inner, self.recipe, self.team = data, held_out, inner, recipe, team
        self.watch: ProgressWatch = watch if team.first else Silent()
        team.require_same(lambda: shared_settings(self.network, data, held_out, inner, recipe), first_difference)
        self.checkpoint = None
        if folder is not None and team.first:
            identity = identity_of(model, data, held_out, inner, recipe, team.size)
            answers = FirstAnswers(model, data)
            _ = answers.plain  # now, because the training changes the model
            self.checkpoint = TrainingCheckpoint(folder, identity, answers)
        self.images = TrainingImages(data, recipe, self.device)
        self.steps = self.images.groups * inner.replays  # per epoch
        self.total = self.steps * recipe.epochs

    def run(self) -> Tuned:
        """Train to the end.

        Raises:
            Diverged: a loss, gradient or weight is not finite; the model then has the best weights so far.
        """
        with ExitStack() as stack:
            stack.enter_context(alone())
            stack.enter_context(restored_random_state())
            stack.enter_context(exact_arithmetic(self.device))
            stack.enter_context(torch.inference_mode(mode=False))
            stack.enter_context(torch.enable_grad())
            stack.callback(self.model.eval)
            # In train mode, the queries before the first step would change the statistics it starts from.
            self.model.eval()
            # The first step would add to a gradient that the caller has left.
            self.model.zero_grad(set_to_none=True)
            stack.callback(self.model.zero_grad, set_to_none=True)
            stack.enter_context(prepared_network(self.model, self.recipe))
            self._prepare()
            try:
                status = self._train()
            finally:
                put_back(self.network, self.best_weights)
            result = self._result(status)
            if self.checkpoint is not None and not self.was_finished:
                self.checkpoint.finish(self.progress, self.best_weights)
            return result

    def _prepare(self) -> None:
        recipe, network = self.recipe, self.network
        self.team.copy_from_first(network.state_dict().values())
        few = self.images.batch(0, range(min(_TRIAL_IMAGES, len(self.data))))
        self.stepper = build_stepper(self.model, self.inner, recipe, few.x, Prior({}), self.team)
        if self.objective.uses_attack:
            self._try_attack(few)
        # The prior may need the stepper: EWC attacks images for its Fisher information.
        self.stepper.prior = self._prior(set(ever_free(network, recipe.freeze, recipe.epochs)))
        x_val, y_val = on_device(self.held_out, sorted(pick(len(self.held_out))[:_VALIDATION_IMAGES]), self.device)
        ball = self.inner.attack.ball
        eps = ball.eps if self.objective.uses_attack else 0.0
        self.judge = Judge(x_val, y_val, recipe.select, ball.norm, eps, recipe.seed, self.team)
        content = self.team.from_first(lambda: None if self.checkpoint is None else self.checkpoint.read())
        self.was_finished = content is not None and is_finished(content)
        if content is None:
            self._begin()
        else:
            self.progress, self.best_weights = resume(content, self.stepper, self.total)
            for _ in self.progress.rolled_back:
                self.stepper.attack_with(stronger(self.stepper.inner) or self.stepper.inner)

    def _try_attack(self, few: Batch) -> None:
        try:
            x_adv = self.stepper.adversarial(few, 1.0)
        except Diverged:
            raise UserError(
                "The gradient of the model's loss in its input is NaN or infinite before any training; look for sqrt, "
                "log or a division at zero in the model."
            ) from None
        if torch.equal(x_adv, few.x):
            raise UserError(
                f"The attack {self.recipe.attack!r} changes none of the first images, so the training would see clean "
                "images only: the model's input gradient is zero there; give an attack with a random start, or correct "
                "the model."
            )

    def _begin(self) -> None:
        recipe, start = self.recipe, self.judge.score(self.model)
        attacked_and_weak = self.objective.uses_attack and start.worst < guards.ROBUST
        warmup = recipe.eps_warmup if recipe.eps_warmup is not None else 0.5 if attacked_and_weak else 0.0
        self.progress = TrainingProgress(start=start, best=start, warmup=warmup)
        self.best_weights = copied(self.network)
        first, weight = next(self.network.named_parameters())
        prefix = first in frozen_names(self.network, recipe.freeze) or not weight.requires_grad
        has_norms = bool(norms_of(self.network))
        for note in guards.notes_before(
            recipe, start, prefix=prefix, has_norms=has_norms, uses_attack=self.objective.uses_attack
        ):
            self._note(note)

    def _train(self) -> str:
        progress = self.progress
        while (epoch := progress.step // self.steps) < self.recipe.epochs:
            status = self._early_end(epoch)
            if status is not None:
                return status
            with frozen_in(self.network, self.recipe, epoch), self.stepper.together():
                try:
                    self._epoch(epoch)
                except Diverged as error:
                    has_file = self.checkpoint is not None and self.checkpoint.file.exists()
                    intact = " The checkpoint is intact." if has_file else ""
                    raise Diverged(f"In epoch {epoch + 1} of {self.recipe.epochs}: {error}{intact}") from None
        return self._early_end(self.recipe.epochs) or "finished"

    def _early_end(self, epochs: int) -> str | None:
        """The status of a training that should stop after so many epochs; None if it should continue."""
        clean = [self.progress.start.clean, *(row["val_clean"] for row in self.progress.rows)]
        if guards.hopeless(clean, self.judge.chance):
            return "collapsed"
        patience = self.recipe.patience
        waited = epochs - self.progress.best_epoch
        out_of_patience = patience is not None and waited >= patience and epochs < self.recipe.epochs
        too_many_roll_backs = len(self.progress.rolled_back) > _MOST_ROLL_BACKS
        return "stopped early" if out_of_patience or too_many_roll_backs else None

    def _epoch(self, epoch: int) -> None:
        progress, recipe = self.progress, self.recipe
        groups = self.images.grouped(epoch)
        self._forget_frozen()
        self.model.train()
        last_checkpoint = time.monotonic()
        for number in range(progress.step - epoch * self.steps, self.steps):
            start = time.monotonic()
            self._step(epoch, groups[number // self.inner.replays])
            progress.seconds += time.monotonic() - start
            self.watch.training(f"epoch {epoch + 1} of {recipe.epochs}", progress.step / self.total)
            if number + 1 < self.steps and time.monotonic() - last_checkpoint > _CHECKPOINT_SECONDS:
                self._write_checkpoint()
                last_checkpoint = time.monotonic()
        self._close(epoch)
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.write(self.progress, self.stepper, self.best_weights)

    def _step(self, epoch: int, group: Sequence[Sequence[int]]) -> None:
        progress, recipe = self.progress, self.recipe
        share = progress.step / self.total
        for settings in self.stepper.optimizer.param_groups:
            settings["lr"] = recipe.lr * rate(recipe.schedule, recipe.warmup, share)
        self._seed()
        batches = [self.images.batch(epoch, ids[self.team.share(len(ids))])._replace(whole=len(ids)) for ids in group]
        report = self.stepper.step(batches, radius_share(progress.warmup, share))
        progress.loss += report.loss * report.images
        progress.right += report.correct
        progress.images += report.images
        progress.step += 1

    def _seed(self) -> None:
        """Seed the global generators for this step; each process differently, the first as if it were alone."""
        number = self.recipe.seed * SEEDS_APART + self.progress.step + self.team.rank * _PROCESSES_APART
        # Not torch.manual_seed: it would also seed every other GPU.
        torch.default_generator.manual_seed(number)
        random.seed(number)
        np.random.seed(number % (1 << 32))
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):  # the current device may be another than the model's
                torch.cuda.manual_seed(number)

    def _close(self, epoch: int) -> None:
        """Judge the epoch, remember the best one, and look for catastrophic overfitting."""
        progress = self.progress
        try:
            score, weights = self._judge_epoch(epoch)
        except Diverged:
            raise
        except UserError as error:
            # The network could be judged at the start, so the training has broken it.
            raise Diverged(f"The network can no longer be judged ({str(error).rstrip('.')}); lower lr.") from error
        better = score.better_than(progress.best) and not guards.collapsed(score.clean, self.judge.chance)
        if better:
            progress.best, progress.best_epoch, self.best_weights = score, epoch + 1, weights
        share = progress.step / self.total
        progress.rows.append({
            "epoch": epoch + 1,
            "loss": progress.loss / progress.images,
            "eps": self.judge.eps * radius_share(progress.warmup, share),
            "lr": self.stepper.optimizer.param_groups[0]["lr"],
            "train_attacked": progress.right / progress.images,
            "val_clean": score.clean,
            "val_ce": score.ce,
            "val_worst": score.worst,
            "best": better,
            "rolled_back": False,
            "seconds": progress.seconds,
        })  # fmt: skip
        progress.loss, progress.right, progress.images, progress.seconds = 0.0, 0, 0, 0.0
        self._roll_back_if_overfitted()

    def _roll_back_if_overfitted(self) -> None:
        progress, next_inner = self.progress, stronger(self.stepper.inner)
        if not self.recipe.guard or not self.objective.uses_attack or next_inner is None:
            return
        rows = progress.rows
        if radius_share(progress.warmup, (len(rows) - 1) / self.recipe.epochs) < guards.GROWN:
            return
        inner = [progress.start.worst, *(row["train_attacked"] for row in rows)]
        worst = [progress.start.worst, *(row["val_worst"] for row in rows)]
        if not guards.overfitted(inner, worst):
            return
        progress.rolled_back.append(rows[-1]["epoch"])
        continues = len(progress.rolled_back) <= _MOST_ROLL_BACKS
        next_text = registry.spelled(next_inner.attack) if continues else None
        self._note(guards.overfitting_note(inner[-1], worst[-1], rows[-1]["epoch"], progress.best_epoch, next_text))
        if continues:
            rows[-1]["rolled_back"] = True
            put_back(self.network, self.best_weights)
            # The optimizer's momentum comes from the steps that overfitted.
            self.stepper.optimizer.state.clear()
            self.stepper.average = new_average(self.network, self.recipe)
            self.stepper.attack_with(next_inner)

    def _judge_epoch(self, epoch: int) -> tuple[ValidationScore, dict[str, Tensor]]:
        """Score and weights of the epoch: the better one of the last weights and their average."""
        candidates = []
        for averaged in (False, True) if self.stepper.average is not None else (False,):
            with self._candidate(epoch, averaged):
                candidates.append((self.judge.score(self.model), copied(self.network)))
        last, average = candidates[0], candidates[-1]
        return average if len(candidates) == 1 or average[0].better_than(last[0]) else last

    @contextmanager
    def _candidate(self, epoch: int, averaged: bool) -> Iterator[None]:
        """Weights that may be kept, in the network while the context lasts, recalibrated if the recipe says so."""
        before = copied(self.network)
        try:
            if averaged and self.stepper.average is not None:
                self.stepper.average.copy_to(self.network)
            if self.recipe.recalibrate:
                ids = self.images.order(epoch)[:_STATISTICS_IMAGES]
                recalibrate(self.model, (x for x, _ in self._adversarial(epoch, ids)))
                self.team.copy_from_first(self.network.buffers())
            yield
        finally:
            put_back(self.network, before)

    def _adversarial(self, epoch: int, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Adversarial batches against the current network, at the full radius."""
        for part in self.images.parted(ids):
            batch = self.images.batch(epoch, part)
            yield self.stepper.adversarial(batch, 1.0), batch.y

    def _prior(self, names: set[str]) -> Prior:
        recipe, information = self.recipe, None
        if recipe.prior.strip().lower().startswith("ewc"):
            batches = self._adversarial(0, self.images.order(0)[:_FISHER_IMAGES])
            information = fisher(self.stepper.logits, self.model, self.network, names, batches)
            self.team.copy_from_first(information.values())
        fresh = chosen([name for name, _ in self.network.named_parameters()], recipe.fresh)
        return prior(
            recipe.prior, self.network, len(self.data), fresh=fresh, fisher=information,
            decay_norms=recipe.decay_norms, names=names,
        )  # fmt: skip

    def _forget_frozen(self) -> None:
        """Delete the optimizer's state of weights that are frozen now: their momentum would still move them."""
        for weight in list(self.stepper.optimizer.state):
            if not weight.requires_grad:
                del self.stepper.optimizer.state[weight]

    def _note(self, text: str) -> None:
        if self.progress.note(text):
            self.watch.say(text)

    def _result(self, status: str) -> Tuned:
        progress = self.progress
        if progress.rows:
            clean = progress.rows[-1]["val_clean"]
            if guards.collapsed(clean, self.judge.chance):
                status = "collapsed"
                self._note(guards.collapse_note(self.recipe, clean, len(progress.rows)))
        if progress.best_epoch == 0:
            self._note("No epoch was better than the start on validation images, so the weights are unchanged.")
        masking = guards.masking_note(progress.best) if self.objective.uses_attack else None
        if masking is not None:
            self._note(masking)
        return Tuned(
            self.model, pd.DataFrame(progress.rows), progress.start, progress.best, progress.best_epoch, status,
            tuple(progress.notes), self.recipe,
        )  # fmt: skip
