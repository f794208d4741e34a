"""Run a training in a process that may be killed at a step: `python -m tests.defenses.crash FOLDER STEP`."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from robustkit.defenses import Recipe, Tuned, finetune
from robustkit.defenses.training import training
from torch import nn

from tests.defenses.doubles import at_step
from tests.defenses.nets import SHORT, TRAIN, VAL, net

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
    return network, finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, out=folder, watch=at_step(step, end))


if __name__ == "__main__":
    training._CHECKPOINT_SECONDS = 0.0  # after every step
    run(Path(sys.argv[1]), step=int(sys.argv[2]), end=lambda: os.kill(os.getpid(), signal.SIGKILL))
