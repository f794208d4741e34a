"""Short trainings that are interrupted, or whose process is killed, at a step."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from robustkit.defenses import Recipe, Tuned, finetune
from torch import nn

from tests.defenses.doubles import at_step
from tests.defenses.nets import SHORT, TRAIN, VAL, net

# Three batches an epoch: with two accumulated, the last step of an epoch has one.
DIGITS = (TRAIN[0][:96], TRAIN[1][:96])
ALL: Recipe = SHORT.but(
    epochs=3, ema=0.9, recalibrate=True, awp=0.01, clip=5.0, prior="l2sp:0.01", freeze="0:all-but:fc;1:conv1;2:none",
    eps_warmup=0.5, accumulate=2, label_smoothing=0.1, attack_bn="train",
)  # fmt: skip


class StopError(Exception):
    """The training was interrupted."""


def stop() -> None:
    raise StopError


def run(
    folder: Path | None, recipe: Recipe = ALL, step: int = 0, end: Callable[[], object] = stop
) -> tuple[nn.Module, Tuned]:
    """Train, and end it after a step if one is given."""
    network = net(dropout=0.3)
    return network, finetune(network, DIGITS, VAL, eps=0.1, recipe=recipe, out=folder, watch=at_step(step, end))


def killed(folder: Path, step: int) -> bool:
    """Whether the process of a training ended by SIGKILL after a step."""
    child = os.fork()
    if child == 0:
        try:
            run(folder, step=step, end=lambda: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == signal.SIGKILL
