"""The recipe of a fine-tuning: every choice in one frozen value, and three presets."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.primitives.protocol import Attack

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["onecycle", "cosine", "piecewise", "flat"]
Statistics = Literal["batch", "frozen", "frozen-prefix", "split"]
AttackMode = Literal["eval", "train", "batch"]

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("onecycle", "cosine", "piecewise", "flat"),
    "bn": ("batch", "frozen", "frozen-prefix", "split"),
    "attack_bn": ("eval", "train", "batch"),
}
_MAY_BE_NONE = ("patience", "eps_warmup", "ema", "clip")


@dataclass(frozen=True)
class Recipe:
    """All choices of one fine-tuning.

    Args:
        epochs: passes over the training images.
        batch: images per step, of all processes together.
        objective: "clean", "at", "trades:BETA" or "mart:BETA".
        attack: the inner attack, such as "pgd:steps=7", or an attack object; "rs-fgsm", "nfgsm" and "free:4" are
            made for training.
        eps_warmup: share of the training over which the radius grows from 0; None means one half if the start is not
            robust, else 0. Gaussian noise keeps its sigma.
        label_smoothing: of the outer loss, in torch's convention: the true class has probability `1 - s + s / K`.
        bn: BatchNorm in the outer step: "batch" statistics; "frozen" ones everywhere; "frozen-prefix", frozen up to the
            last frozen weight; "split", one layer for clean and one for adversarial images, which is kept in the end.
        attack_bn: BatchNorm in the attack: "eval", "train", or "batch" statistics without tracking them. "free:N"
            takes both gradients in one pass, so always in train mode.
        recalibrate: recalculate BatchNorm statistics on adversarial batches before an epoch is judged and kept.
        freeze: which weights are frozen: "none", "prefix:LAYER", "all-but:LAYER", "bn-only", or globs of parameters; by
            epoch as "0:all-but:fc;2:prefix:layer2;4:none".
        prior: "none", "gaussian:decay=5e-4", "gaussian:std=0.2", "l2sp:0.01", "ewc:1".
        decay_norms: whether the prior also covers BatchNorm's weights and all biases.
        fresh: globs of parameters or layers without pretrained values, such as a new head: their prior is centred at 0.
        optimizer: "sgd" or "adamw".
        lr: largest learning rate.
        momentum: of SGD.
        nesterov: Nesterov's accelerated gradient in place of heavy-ball momentum.
        schedule: of the learning rate.
        warmup: share of the steps in which it rises.
        clip: largest norm of a step's gradient; None does not clip.
        ema: decay of a moving average of the weights; None for no average.
        awp: relative size of the adversarial weight perturbation; 0 for none.
        accumulate: batches per step of the optimizer.
        bf16: the network under bf16 autocast; losses and verdicts stay fp32.
        channels_last: memory layout while training. On 8 x 8 images and one thread it was a fifth slower.
        select: attack that chooses the epoch on validation images, in its cross-entropy and margin forms; one of the
            package or "file.py:Class" of your own that takes a `loss`.
        patience: epochs without improvement after which training stops; None never stops early.
        guard: on catastrophic overfitting, restore the best epoch and continue with a stronger inner attack; checked in
            epochs that begin with at least 0.8 of the radius.
        seed: of order, noise and dropout.

    Raises:
        UserError: a value is out of range; the sentence names it.
    """

    epochs: int = 10
    batch: int = 128
    objective: str = "at"
    attack: str | Attack = "pgd:steps=7"
    eps_warmup: float | None = None
    label_smoothing: float = 0.0
    bn: Statistics = "batch"
    attack_bn: AttackMode = "eval"
    recalibrate: bool = False
    freeze: str = "none"
    prior: str = "gaussian:decay=5e-4"
    decay_norms: bool = True
    fresh: str = ""
    optimizer: Optimizer = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = True
    schedule: Schedule = "onecycle"
    warmup: float = 0.25
    clip: float | None = None
    ema: float | None = None
    awp: float = 0.0
    accumulate: int = 1
    bf16: bool = False
    channels_last: bool = False
    select: str = "pgd:steps=20"
    patience: int | None = None
    guard: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, str(getattr(self, name)), choices)
        for each in fields(self):
            value = getattr(self, each.name)
            allowed = (str, Attack) if each.name == "attack" else type(each.default)
            if isinstance(each.default, bool | str) and not isinstance(value, allowed):
                kind = "true or false" if isinstance(each.default, bool) else "a text"
                raise UserError(f"{each.name} must be {kind}, not {value!r}.")
        self._whole(1, "epochs", "batch", "accumulate", "patience")
        limits.require_at_most("epochs", self.epochs, limits.EPOCHS)
        limits.require_at_most("batch", self.batch, limits.TRAINING_BATCH)
        limits.require_at_most("accumulate", self.accumulate, limits.TRAINING_BATCH)
        self._whole(0, "seed")
        self._between(0, 1, "warmup", "eps_warmup")
        # At 1 an average would never change, momentum never decay, and the labels carry no information.
        self._between(0, 1, "label_smoothing", "momentum", "ema", below=True)
        self._between(0, math.inf, "awp", below=True)
        self._between(sys.float_info.min, math.inf, "lr", "clip", below=True)
        if self.nesterov and self.optimizer == "sgd" and self.momentum == 0:
            raise UserError("Nesterov's gradient needs a momentum above 0; give one, or nesterov=False.")

    def _whole(self, least: int, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"{name} must be a whole number of at least {least}, not {limits.shown(value)}.")
            limits.require_at_most(name, value, 2**31 - 1)

    def _between(self, low: float, high: float, *names: str, below: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low <= value <= high or (below and value == high):
                least = "above 0" if low and not math.isinf(low) else f"at least {low:g}"
                raise UserError(
                    f"{name} must be {least} and {'below' if below else 'at most'} {high:g}, not {value!r}."
                )

    def but(self, **changes: object) -> "Recipe":
        """The same recipe with some choices changed."""
        unknown_names = [name for name in changes if name not in self.__dataclass_fields__]
        if unknown_names:
            raise unknown("choice", unknown_names[0], self.__dataclass_fields__)
        return replace(self, **changes)  # type: ignore[arg-type]


# Measured on digits' validation split; see bench/README.md.
PRESETS: Mapping[str, Recipe] = {
    # One step of 1.25 eps from a random start: Wong et al. 2020, arXiv:2001.03994.
    "fast": Recipe(attack="rs-fgsm"),
    "safe": Recipe(),
    # Zhang et al. 2019, arXiv:1901.08573, with averaged weights as in Gowal et al. 2020, arXiv:2010.03593.
    "strong": Recipe(objective="trades:6", attack="pgd:steps=10", ema=0.995, label_smoothing=0.1, recalibrate=True),
}
