"""The course of a training: epochs of steps, each judged on validation images; the best one is kept.

Order, noise and dropout are functions of (seed, epoch, step), never of what ran before, so a training that was killed
goes on from its last kept step bit for bit.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from robustkit.classifier.isolation import exact_arithmetic
from robustkit.data import Dataset, pick
from robustkit.errors import UserError
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.models.preprocessing import network_in
from robustkit.primitives import registry

from ..inner_attack.diverged import Diverged
from ..inner_attack.objectives import objective
from ..inner_attack.specification import Inner, stronger
from ..weights.batchnorm import norms_of, recalibrated, statistics_frozen
from ..weights.fisher import fisher
from ..weights.folding import fold
from ..weights.freezing import chosen, ever_free, frozen, frozen_names, still_layers
from ..weights.prior import Prior, prior
from ..weights.split import split
from . import guards
from .batches import Batch
from .checks import checked_network
from .images import APART, TrainingImages, placed
from .parallel import ALONE, Team
from .progress import (
    TrainingFile,
    TrainingProgress,
    copied,
    difference,
    fresh_average,
    identity_of,
    likeness_of,
    resumed,
)
from .recipe import Recipe
from .schedule import radius_share, rate
from .selection import Judge, ValidationScore
from .stepping import Stepper

_JUDGED_ON = 2000  # validation images: one standard error of a share is then a point
_SHOWN_TO_STATISTICS = 2048  # images that BatchNorm statistics are taken anew over
_SHOWN_TO_FISHER = 256
_KEEP_SECONDS = 60.0  # within an epoch
_FEW = 8  # images that show whether the attack does anything
_ROLL_BACKS = 2
_PROCESSES_APART = 0x9E3779B1  # between the random streams of two processes: a torch generator on a CPU takes 32 bits


@dataclass(frozen=True)
class Tuned:
    """What a fine-tuning led to."""

    model: nn.Module  # the caller's own, with the weights of the best epoch, in eval mode
    history: pd.DataFrame  # one row per epoch; "seconds" are its training's, validation apart
    start: ValidationScore  # on validation images, before
    best: ValidationScore  # and of the epoch kept
    best_epoch: int  # 0 is the start itself
    status: str  # "finished", "stopped early" or "collapsed"
    notes: tuple[str, ...]
    recipe: Recipe


class Training:
    """One fine-tuning, from its start or from where it was kept.

    Args:
        model: takes pixels in [0, 1]; it is changed.
        data: training images.
        held_out: validation images.
        inner: the attack, at full radius.
        recipe: all other choices.
        folder: where it is kept, or None.
        watch: is told of the progress.
        team: the processes that train together. The first one keeps and tells; the rest is done by all alike.
    """

    def __init__(
        self, model: nn.Module, data: Dataset, held_out: Dataset, inner: Inner, recipe: Recipe,
        folder: Path | None, watch: ProgressWatch, team: Team = ALONE,
    ) -> None:  # fmt: skip
        self.goal = objective(recipe.objective)
        checked_network(model, data, held_out, recipe, team.size)
        self.model, self.network = model, network_in(model)
        self.device = next(model.parameters()).device
        self.data, self.held_out, self.inner, self.recipe, self.team = data, held_out, inner, recipe, team
        self.watch: ProgressWatch = watch if team.first else Silent()
        team.same(lambda: likeness_of(self.network, data, held_out, inner, recipe), difference)
        self.kept = None
        if folder is not None and team.first:
            self.kept = TrainingFile(folder, identity_of(self.network, data, held_out, inner, recipe, team.size))
        self.images = TrainingImages(data, recipe, self.device)
        self.steps = self.images.groups * inner.replays  # per epoch
        self.total = self.steps * recipe.epochs

    def run(self) -> Tuned:
        """The whole training.

        Raises:
            Diverged: a loss, gradient or weight is no longer a number; the model then has the best weights so far.
        """
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []))
            stack.enter_context(exact_arithmetic(self.device))
            stack.enter_context(torch.inference_mode(mode=False))
            stack.enter_context(torch.enable_grad())
            stack.callback(self.model.eval)
            # In train mode, queries before the first step would move the statistics it starts from.
            self.model.eval()
            # A gradient left behind would be learnt from in the first step.
            self.model.zero_grad(set_to_none=True)
            stack.callback(self.model.zero_grad, set_to_none=True)
            if self.recipe.bn == "split":
                stack.enter_context(split(self.network))
            if self.recipe.channels_last:
                self.model.to(memory_format=torch.channels_last)
                stack.callback(self.model.to, memory_format=torch.contiguous_format)
            self._prepare()
            try:
                status = self._train()
            finally:
                self.network.load_state_dict(self.best_weights)
            return self._tuned(status)

    def _prepare(self) -> None:
        recipe, network = self.recipe, self.network
        self.team.equal(network.state_dict().values())
        weights = ever_free(network, recipe.freeze, recipe.epochs)
        few = self.images.batch(0, range(min(_FEW, len(self.data))))
        view = fold(self.model, few.x) if self.goal.attacks else None
        self.stepper = Stepper(
            self.model, self.inner, self.goal, recipe, Prior({}), _optimizer(list(weights.values()), recipe),
            fresh_average(network, recipe), view, self.team,
        )  # fmt: skip
        if self.goal.attacks:
            self._check_attack(few)
        self.stepper.prior = self._prior(set(weights))
        x_val, y_val = placed(self.held_out, sorted(pick(len(self.held_out))[:_JUDGED_ON]), self.device)
        ball = self.inner.attack.ball
        self.judge = Judge(
            x_val, y_val, recipe.select, ball.norm, ball.eps if self.goal.attacks else 0.0, recipe.seed, self.team
        )
        found = self.team.from_first(lambda: None if self.kept is None else self.kept.read())
        if found is None:
            self._begin()
        else:
            self.progress, self.best_weights = resumed(found, self.stepper)
            for _ in self.progress.rolled_back:
                self.stepper.attack_with(stronger(self.stepper.inner) or self.stepper.inner)

    def _check_attack(self, few: Batch) -> None:
        try:
            found = self.stepper.adversarial(few, 1.0)
        except Diverged:
            raise UserError(
                "The model's gradient in its input is NaN or infinite before any training; look for sqrt, log or a "
                "division at zero in it."
            ) from None
        if torch.equal(found, few.x):
            raise UserError(
                f"The attack {self.recipe.attack!r} changes none of the first images, so nothing would be learnt from "
                "it: the model's gradient is zero there; give an attack with a random start, or mend the model."
            )

    def _begin(self) -> None:
        recipe, start = self.recipe, self.judge.level(self.model)
        weak = self.goal.attacks and start.worst < guards.ROBUST
        warmup = recipe.eps_warmup if recipe.eps_warmup is not None else 0.5 if weak else 0.0
        self.progress, self.best_weights = (
            TrainingProgress(start=start, best=start, warmup=warmup),
            copied(self.network),
        )
        first, weight = next(self.network.named_parameters())
        for note in guards.before(
            recipe, start, prefix=first in frozen_names(self.network, recipe.freeze) or not weight.requires_grad,
            norms=bool(norms_of(self.network)), attacks=self.goal.attacks,
        ):  # fmt: skip
            self._note(note)

    def _train(self) -> str:
        progress = self.progress
        while (epoch := progress.step // self.steps) < self.recipe.epochs:
            over = self._over(epoch)
            if over is not None:
                return over
            names = frozen_names(self.network, self.recipe.freeze, epoch)
            still = still_layers(self.network, names, self.recipe.bn)
            with frozen(self.network, names), statistics_frozen(still), self.stepper.together():
                try:
                    self._epoch(epoch)
                except Diverged as error:
                    kept = (
                        " What was kept of the training is as it was."
                        if self.kept is not None and self.kept.file.exists()
                        else ""
                    )
                    raise Diverged(f"In epoch {epoch + 1} of {self.recipe.epochs}: {error}{kept}") from None
        return self._over(self.recipe.epochs) or "finished"

    def _over(self, epochs: int) -> str | None:
        """Why there is no use in going on after so many epochs, if so."""
        clean = [self.progress.start.clean, *(row["val_clean"] for row in self.progress.rows)]
        if guards.hopeless(clean, self.judge.chance):
            return "collapsed"
        patience = self.recipe.patience
        tired = patience is not None and epochs - self.progress.best_epoch >= patience and epochs < self.recipe.epochs
        return "stopped early" if tired or len(self.progress.rolled_back) > _ROLL_BACKS else None

    def _epoch(self, epoch: int) -> None:
        progress, recipe = self.progress, self.recipe
        groups = self.images.grouped(epoch)
        self._forget_frozen()
        self.model.train()
        last = time.monotonic()
        for number in range(progress.step - epoch * self.steps, self.steps):
            begun = time.monotonic()
            self._step(epoch, groups[number // self.inner.replays])
            progress.seconds += time.monotonic() - begun
            self.watch.training(f"epoch {epoch + 1} of {recipe.epochs}", progress.step / self.total)
            if self.kept is not None and number + 1 < self.steps and time.monotonic() - last > _KEEP_SECONDS:
                self.kept.write(progress, self.stepper, self.best_weights)
                last = time.monotonic()
        self._close(epoch)
        if self.kept is not None:
            self.kept.write(progress, self.stepper, self.best_weights)

    def _step(self, epoch: int, group: Sequence[Sequence[int]]) -> None:
        progress, recipe = self.progress, self.recipe
        share = progress.step / self.total
        for settings in self.stepper.optimizer.param_groups:
            settings["lr"] = recipe.lr * rate(recipe.schedule, recipe.warmup, share)
        # Not torch.manual_seed: it would also seed every other GPU, and those are not put back.
        # Each process draws for its own images; the first one as if it were alone.
        number = recipe.seed * APART + progress.step + self.team.rank * _PROCESSES_APART
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):  # else the current one, which need not be the model's
                torch.cuda.manual_seed(number)
        batches = [self.images.batch(epoch, ids[self.team.share(len(ids))])._replace(whole=len(ids)) for ids in group]
        told = self.stepper.step(batches, radius_share(progress.warmup, share))
        progress.loss += told.loss * told.images
        progress.right += told.right
        progress.images += told.images
        progress.step += 1

    def _close(self, epoch: int) -> None:
        """Judge the epoch, remember the best one, and look for what went wrong."""
        progress = self.progress
        try:
            found, weights = self._judged(epoch)
        except Diverged:
            raise
        except UserError as error:
            # It could be judged at the start.
            raise Diverged(f"The network can no longer be judged ({str(error).rstrip('.')}); lower lr.") from error
        better = found.better_than(progress.best) and not guards.collapsed(found.clean, self.judge.chance)
        if better:
            progress.best, progress.best_epoch, self.best_weights = found, epoch + 1, weights
        share = progress.step / self.total
        progress.rows.append({
            "epoch": epoch + 1,
            "loss": progress.loss / progress.images,
            "eps": self.judge.eps * radius_share(progress.warmup, share),
            "lr": self.stepper.optimizer.param_groups[0]["lr"],
            "train_attacked": progress.right / progress.images,
            "val_clean": found.clean,
            "val_ce": found.ce,
            "val_worst": found.worst,
            "best": better,
            "rolled_back": False,
            "seconds": progress.seconds,
        })  # fmt: skip
        progress.loss, progress.right, progress.images, progress.seconds = 0.0, 0, 0, 0.0
        self._roll_back_if_overfitted()

    def _roll_back_if_overfitted(self) -> None:
        progress, then = self.progress, stronger(self.stepper.inner)
        if not self.recipe.guard or not self.goal.attacks or then is None:
            return
        start, rows = progress.start.worst, progress.rows
        if radius_share(progress.warmup, (len(rows) - 1) / self.recipe.epochs) < guards.GROWN:
            return
        inner = [start, *(row["train_attacked"] for row in rows)]
        worst = [start, *(row["val_worst"] for row in rows)]
        if not guards.overfitted(inner, worst):
            return
        progress.rolled_back.append(rows[-1]["epoch"])
        again = len(progress.rolled_back) <= _ROLL_BACKS
        then_text = registry.spelled(then.attack) if again else None
        self._note(guards.of_overfitting(inner[-1], worst[-1], rows[-1]["epoch"], progress.best_epoch, then_text))
        if again:
            rows[-1]["rolled_back"] = True
            self.network.load_state_dict(self.best_weights)
            # What the optimizer remembers led here.
            self.stepper.optimizer.state.clear()
            self.stepper.average = fresh_average(self.network, self.recipe)
            self.stepper.attack_with(then)

    def _judged(self, epoch: int) -> tuple[ValidationScore, dict[str, Tensor]]:
        """The better one of the weights as they are and their average."""
        found = []
        for averaged in (False, True) if self.stepper.average is not None else (False,):
            with self._candidate(epoch, averaged):
                found.append((self.judge.level(self.model), copied(self.network)))
        return found[-1] if len(found) == 1 or found[1][0].better_than(found[0][0]) else found[0]

    @contextmanager
    def _candidate(self, epoch: int, averaged: bool) -> Iterator[None]:
        """The weights that could be kept in the network while this lasts, with statistics of their own if asked for."""
        before = copied(self.network)
        try:
            if averaged and self.stepper.average is not None:
                self.stepper.average.into(self.network)
            if self.recipe.recalibrate:
                shown = self.images.order(epoch)[:_SHOWN_TO_STATISTICS]
                recalibrated(self.model, (x for x, _ in self._adversarial(epoch, shown)))
                self.team.equal(self.network.buffers())
            yield
        finally:
            self.network.load_state_dict(before)

    def _adversarial(self, epoch: int, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Adversarial batches against the network as it is, at the full radius."""
        for some in self.images.parted(ids):
            batch = self.images.batch(epoch, some)
            yield self.stepper.adversarial(batch, 1.0), batch.y

    def _prior(self, names: set[str]) -> Prior:
        recipe, information = self.recipe, None
        if recipe.prior.strip().lower().startswith("ewc"):
            shown = self._adversarial(0, self.images.order(0)[:_SHOWN_TO_FISHER])
            information = fisher(self.stepper.logits, self.model, self.network, names, shown)
            self.team.equal(information.values())
        fresh = chosen([name for name, _ in self.network.named_parameters()], recipe.fresh)
        return prior(
            recipe.prior, self.network, len(self.data), fresh=fresh, fisher=information,
            decay_norms=recipe.decay_norms, names=names,
        )  # fmt: skip

    def _forget_frozen(self) -> None:
        """Take what the optimizer remembers of a weight that was frozen since: its momentum would move it later."""
        for weight in list(self.stepper.optimizer.state):
            if not weight.requires_grad:
                del self.stepper.optimizer.state[weight]

    def _note(self, text: str) -> None:
        if self.progress.note(text):
            self.watch.say(text)

    def _tuned(self, status: str) -> Tuned:
        progress = self.progress
        if progress.rows:
            clean = progress.rows[-1]["val_clean"]
            if guards.collapsed(clean, self.judge.chance):
                status = "collapsed"
                self._note(guards.of_collapse(self.recipe, clean, len(progress.rows)))
        if progress.best_epoch == 0:
            self._note("No epoch was better on validation images than the start, so the weights are as before.")
        masked = guards.of_masking(progress.best) if self.goal.attacks else None
        if masked is not None:
            self._note(masked)
        return Tuned(
            self.model, pd.DataFrame(progress.rows), progress.start, progress.best, progress.best_epoch, status,
            tuple(progress.notes), self.recipe,
        )  # fmt: skip


def _optimizer(weights: list[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    # No weight decay here: the prior is the only pull on the weights.
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(weights, recipe.lr, weight_decay=0.0)
    return torch.optim.SGD(weights, recipe.lr, recipe.momentum, nesterov=recipe.nesterov)
