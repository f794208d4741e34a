"""One training of an ablation: run it, judge it on test images, and store the outcome in one file."""

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.host.arguments import check_fields
from robustkit.host.files import PART
from robustkit.host.progress import ProgressWatch
from robustkit.models.preprocessing import network_in
from robustkit.primitives import registry
from robustkit.primitives.threat import norm_name, radius

from ..cost.cost import memory
from ..inner_attack.diverged import Diverged
from ..inner_attack.specification import inner_attack
from ..training.finetuning import finetune
from ..training.first_answers import FirstAnswers
from ..training.identity import described_recipe
from ..training.progress import CHECKPOINT
from ..training.recipe import Recipe
from ..training.selection import Judge, judging_attacks
from ..training.tensor_file import read_tensors, write_tensors
from ..weights.freezing import frozen_names
from .grid import Cell
from .table import STATUSES, TrainingOutcome

_VERDICTS = ("clean", "ce", "worst")
_HASHED = {"train": "other training images", "val": "other validation images", "test": "other test images",
           "start": "another model at the start", "code": "other code of an attack"}  # fmt: skip


@dataclass(frozen=True)
class AblationSetup:
    """What all trainings of an ablation have in common."""

    train: Dataset
    val: Dataset
    test: Dataset
    norm: str
    eps: float | str
    judge: str  # attack on the test images, run on cross-entropy and on the margin
    start: str  # fingerprint of the model that each training starts from

    @cached_property
    def _images(self) -> dict[str, str]:
        sets = {"train": self.train, "val": self.val, "test": self.test}
        return {name: data.fingerprint(range(len(data))) for name, data in sets.items()}

    def identity(self, recipe: Recipe) -> dict[str, Any]:
        """Everything that an outcome depends on, as plain values."""
        return {
            **described_recipe(recipe),
            **self._images,
            "norm": self.norm,
            "eps": str(self.eps),
            "judge": self.judge,
            "start": self.start,
            **self._own_code(recipe),
        }

    def _own_code(self, recipe: Recipe) -> dict[str, Any]:
        """Hashes of the code of attacks that are the user's own; empty without such an attack."""
        judges = [judging_attacks(each, self.norm, self.eps)[0] for each in (self.judge, recipe.select)]
        attacks = [inner_attack(recipe.attack, self.norm, self.eps).attack, *judges]
        described = [registry.described(attack) for attack in attacks]
        # "code" is that of the attack, "loss.code" that of a function which it was given.
        code = [{key: each[key] for key in each if key.rpartition(".")[2] == "code"} for each in described]
        return {"code": code} if any(code) else {}


def train_cell(
    model: nn.Module, recipe: Recipe, setup: AblationSetup, folder: Path | None, watch: ProgressWatch
) -> TrainingOutcome:
    """Fine-tune a fresh model and judge it on the test images.

    Args:
        model: the start; it is changed.
        recipe: with its seed.
        setup: data and threat.
        folder: of the training's own checkpoint.
        watch: receives the progress.
    """
    start = time.perf_counter()
    network = network_in(model)
    names = frozen_names(network, recipe.freeze, recipe.epochs - 1)
    sizes = {name: weight.numel() for name, weight in network.named_parameters()}
    outer, attack = memory(model, setup.train, recipe, eps=setup.eps, norm=setup.norm)
    empty = np.zeros(0, dtype=bool)
    outcome = TrainingOutcome(
        recipe.seed, "diverged", "", empty, empty, empty, 0,
        1 - sum(sizes[name] for name in names) / sum(sizes.values()), float("nan"), outer, attack, 0.0,
    )  # fmt: skip
    try:
        tuned = finetune(
            model, setup.train, setup.val, eps=setup.eps, norm=setup.norm, recipe=recipe, out=folder,
            test=setup.test, watch=watch,
        )  # fmt: skip
    except Diverged as error:
        return replace(outcome, note=str(error), seconds=time.perf_counter() - start)
    verdicts = judge_on_test(tuned.model, setup)
    return replace(
        outcome, status="collapsed" if tuned.status == "collapsed" else "finished", note=" ".join(tuned.notes),
        best_epoch=tuned.best_epoch, seconds_per_epoch=float(tuned.history.seconds.median()),
        seconds=time.perf_counter() - start, **verdicts,
    )  # fmt: skip


def judge_on_test(model: nn.Module, setup: AblationSetup) -> dict[str, Any]:
    """`clean`, `ce` and `worst`: for each test image whether it is classified correctly, clean and under attack."""
    x, y = setup.test.batch(range(len(setup.test)))
    eps = radius(norm_name(setup.norm), setup.eps)
    verdicts = Judge(x, y, setup.judge, setup.norm, eps, seed=0).verdicts(model)
    return {name: correct.numpy() for name, correct in verdicts._asdict().items()}


def file_of(folder: Path, cell: Cell, seed: int) -> Path:
    """The file of the outcome of a cell with a seed."""
    readable = "".join(letter if letter.isalnum() or letter in "=+-._" else "_" for letter in cell.name)[:60]
    return folder / f"{readable}-{hashlib.sha256(cell.name.encode()).hexdigest()[:8]}-seed{seed}.safetensors"


def store(path: Path, outcome: TrainingOutcome, identity: dict[str, Any], answers: FirstAnswers) -> None:
    """Write an outcome, completely or not at all.

    Raises:
        UserError: the folder cannot be written to.
    """
    verdicts = {name: torch.from_numpy(getattr(outcome, name).copy()) for name in _VERDICTS}
    plain = {field.name: getattr(outcome, field.name) for field in fields(outcome) if field.name not in _VERDICTS}
    write_tensors(path, {"test": verdicts}, {"identity": identity, "answers": answers.plain, "outcome": plain})


def stored_outcome(
    path: Path, identity: dict[str, Any], answers: FirstAnswers, images: int
) -> TrainingOutcome | None:  # fmt: skip
    """The outcome on so many test images in a file; None if there is no file.

    Raises:
        UserError: it has other settings, and the sentence names the first difference; or it began with another model;
            or it is damaged.
    """
    content = read_tensors(path)
    if content is None:
        return None
    before = content.notes.get("identity")
    if not isinstance(before, dict):
        raise _damaged(path)
    for key in {**before, **identity}:
        if before.get(key) != identity.get(key):
            what = _HASHED.get(key)
            values = "" if what else f" ({_short(before.get(key))}, not {_short(identity.get(key))})"
            raise UserError(
                f"{path.parent} holds an ablation with {what or f'another {key}'}{values}; give another --out, or the "
                "old settings."
            )
    other = UserError(
        f"{path.parent} holds an ablation with another model at the start: its weights and its code are the same, "
        "but its answers are not; give another --out, or the old model."
    )
    answers.require(content.notes.get("answers"), damaged=_damaged(path), other=other)
    try:
        clean, ce, worst = (_verdicts(content.groups["test"][name], images) for name in _VERDICTS)
        outcome = TrainingOutcome(**content.notes["outcome"], clean=clean, ce=ce, worst=worst)
        check_fields(outcome, but=_VERDICTS)
        if outcome.seed != identity["seed"] or outcome.status not in STATUSES or outcome.judged != bool(len(clean)):
            raise ValueError("it is not as a training writes it")
    except (LookupError, TypeError, ValueError, UserError):
        raise _damaged(path) from None
    return outcome


def _verdicts(values: Tensor, images: int) -> NDArray[np.bool_]:
    """Verdicts of all test images, or of none.

    Raises:
        ValueError: they are none.
    """
    if values.dtype is not torch.bool or values.shape not in ((images,), (0,)):
        raise ValueError("these are no verdicts")
    return values.numpy()


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged; remove it to train this cell again, or give another --out.")


def discard(folder: Path) -> None:
    """Delete a training's checkpoint, and its folder and the one above once they are empty."""
    for file in (folder / CHECKPOINT, *folder.glob(f".{CHECKPOINT}.*{PART}")):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
