"""One training of an ablation: carried out, judged on test images, and kept as one file that is whole or not there."""

import hashlib
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.host.progress import ProgressWatch
from robustkit.models.preprocessing import network_in
from robustkit.primitives.threat import norm_name, radius

from ..cost.cost import memory
from ..inner_attack.diverged import Diverged
from ..training.finetuning import finetune
from ..training.keeping import keep, kept
from ..training.recipe import Recipe
from ..training.selection import Judge
from ..weights.freezing import frozen_names
from .grid import Cell
from .table import TrainingOutcome

_VERDICTS = ("clean", "ce", "worst")


@dataclass(frozen=True)
class Ground:
    """What all trainings of an ablation share."""

    train: Dataset
    val: Dataset
    test: Dataset
    norm: str
    eps: float | str
    judge: str  # attack that passes the verdicts, in its cross-entropy and margin forms
    start: str  # SHA-256 of the weights that each training starts from

    @cached_property
    def _images(self) -> dict[str, str]:
        sets = {"train": self.train, "val": self.val, "test": self.test}
        return {name: data.fingerprint(range(len(data))) for name, data in sets.items()}

    def identity(self, recipe: Recipe) -> dict[str, Any]:
        """All that decides an outcome, as plain values."""
        return {
            **asdict(recipe),
            **self._images,
            "norm": self.norm,
            "eps": str(self.eps),
            "judge": self.judge,
            "start": self.start,
        }


def trained(
    model: nn.Module, recipe: Recipe, ground: Ground, folder: Path | None, watch: ProgressWatch
) -> TrainingOutcome:
    """Fine-tune a fresh model and judge it on the test images.

    Args:
        model: at the start.
        recipe: with its seed.
        ground: data and threat.
        folder: where the training itself is kept while it lasts.
        watch: is told of the progress.
    """
    begun = time.perf_counter()
    network = network_in(model)
    names = frozen_names(network, recipe.freeze, recipe.epochs - 1)
    sizes = {name: weight.numel() for name, weight in network.named_parameters()}
    outer, attacking = memory(model, ground.train, recipe)
    nothing = np.zeros(0, dtype=bool)
    outcome = TrainingOutcome(
        recipe.seed, "diverged", "", nothing, nothing, nothing, 0,
        1 - sum(sizes[name] for name in names) / sum(sizes.values()), float("nan"), outer, attacking, 0.0,
    )  # fmt: skip
    try:
        tuned = finetune(
            model, ground.train, ground.val, eps=ground.eps, norm=ground.norm, recipe=recipe, out=folder,
            test=ground.test, watch=watch,
        )  # fmt: skip
    except Diverged as error:
        return replace(outcome, note=str(error), seconds=time.perf_counter() - begun)
    verdicts = judged(tuned.model, ground)
    return replace(
        outcome, status="collapsed" if tuned.status == "collapsed" else "finished", note=" ".join(tuned.notes),
        best_epoch=tuned.best_epoch, seconds_per_epoch=float(tuned.history.seconds.median()),
        seconds=time.perf_counter() - begun, **verdicts,
    )  # fmt: skip


def judged(model: nn.Module, ground: Ground) -> dict[str, Any]:
    """`clean`, `ce` and `worst`: for each test image whether it is classified correctly, and still so under attack."""
    x, y = ground.test.batch(range(len(ground.test)))
    eps = radius(norm_name(ground.norm), ground.eps)
    found = Judge(x, y, ground.judge, ground.norm, eps, seed=0).verdicts(model)
    return {name: right.numpy() for name, right in found._asdict().items()}


def fingerprint(model: nn.Module) -> str:
    """The SHA-256, in hex, of a model's weights and buffers."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def file_of(folder: Path, cell: Cell, seed: int) -> Path:
    """Where the outcome of a cell with a seed is kept."""
    readable = "".join(letter if letter.isalnum() or letter in "=+-._" else "_" for letter in cell.name)[:60]
    return folder / f"{readable}-{hashlib.sha256(cell.name.encode()).hexdigest()[:8]}-seed{seed}.safetensors"


def store(path: Path, outcome: TrainingOutcome, identity: dict[str, Any]) -> None:
    """Keep an outcome, whole or not at all.

    Raises:
        UserError: the folder cannot be written.
    """
    verdicts = {name: torch.from_numpy(getattr(outcome, name).copy()) for name in _VERDICTS}
    plain = {field.name: getattr(outcome, field.name) for field in fields(outcome) if field.name not in _VERDICTS}
    keep(path, {"test": verdicts}, {"identity": identity, "outcome": plain})


def found(path: Path, identity: dict[str, Any]) -> TrainingOutcome | None:
    """The outcome that is kept there; None where there is none.

    Raises:
        UserError: it was made with other settings, which the sentence names.
    """
    read = kept(path)
    if read is None:
        return None
    before = read.notes["identity"]
    for key in {**before, **identity}:
        if before.get(key) != identity.get(key):
            raise UserError(
                f"{path.parent} holds an ablation with another {key} ({_short(before.get(key))}, not "
                f"{_short(identity.get(key))}); give another --out, or the old settings."
            )
    clean, ce, worst = (read.groups["test"][name].numpy() for name in _VERDICTS)
    return TrainingOutcome(**read.notes["outcome"], clean=clean, ce=ce, worst=worst)


def discard(folder: Path) -> None:
    """Remove what a training kept of itself, and the folder around it once it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
