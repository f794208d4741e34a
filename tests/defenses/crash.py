"""Run a training in a process that may be killed at a step: `python crash.py FOLDER STEP`."""

import os
import signal
import sys
from pathlib import Path

from robustkit.defenses import Recipe, Tuned, finetune
from robustkit.defenses.training import training
from torch import nn

from tests.defenses.nets import SHORT, TRAIN, VAL, net

ALL: Recipe = SHORT.but(
    epochs=3, ema=0.9, recalibrate=True, awp=0.01, clip=5.0, prior="l2sp:0.01", freeze="0:all-but:fc;1:conv1;2:none",
    eps_warmup=0.5, accumulate=2, label_smoothing=0.1, attack_bn="train",
)  # fmt: skip


class StopError(Exception):
    """The training was broken off."""


class Watcher:
    def __init__(self, step: int, killing: bool) -> None:
        self.left, self.killing = step, killing

    def training(self, text: str, share: float) -> None:
        self.left -= 1
        if self.left == 0:
            if self.killing:
                os.kill(os.getpid(), signal.SIGKILL)
            raise StopError

    def say(self, text: str) -> None: ...


def run(folder: Path | None, recipe: Recipe = ALL, step: int = 0, *, killing: bool = False) -> tuple[nn.Module, Tuned]:
    network = net(dropout=0.3)
    found = finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe, out=folder, watch=Watcher(step, killing))
    return network, found


if __name__ == "__main__":
    training._KEEP_SECONDS = 0.0  # after every step
    run(Path(sys.argv[1]), step=int(sys.argv[2]), killing=True)
