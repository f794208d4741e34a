"""The progress of a training, and the checkpoint from which it resumes bit for bit."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.host.arguments import check_fields
from robustkit.models.hashing import hash_tensors

from ..inner_attack.diverged import Diverged
from . import tensor_file
from .first_answers import FirstAnswers
from .identity import first_difference
from .selection import ValidationScore
from .stepping import Stepper

_FORMAT = 1
CHECKPOINT = "training.safetensors"
MODEL_FILE = "model.safetensors"  # as `robustkit finetune` writes it


@dataclass
class TrainingProgress:
    """What a training has done so far. The names of the fields are also the keys of the checkpoint."""

    step: int = 0  # of the optimizer
    rows: list[dict[str, Any]] = field(default_factory=list)  # the history, one row per epoch
    start: ValidationScore = field(default_factory=lambda: ValidationScore(0, 0, 0))
    best: ValidationScore = field(default_factory=lambda: ValidationScore(0, 0, 0))
    best_epoch: int = 0  # 0 is the start
    warmup: float = 0.0  # share of the steps in which the radius grows
    rolled_back: list[int] = field(default_factory=list)  # epochs, from 1
    notes: list[str] = field(default_factory=list)
    # of the current epoch
    loss: float = 0.0  # summed over images
    right: int = 0  # images classified correctly under the inner attack
    images: int = 0
    seconds: float = 0.0

    def note(self, text: str) -> bool:
        """Add a sentence to the notes; False if it is there already."""
        if text in self.notes:
            return False
        self.notes.append(text)
        return True


class TrainingCheckpoint:
    """The file that a training resumes from.

    Args:
        folder: where it is.
        identity: what the training depends on; a file with another identity is refused.
        answers: of the network before the training; a file with others is refused.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], answers: FirstAnswers) -> None:
        self.folder, self.identity, self.answers = folder, json.loads(json.dumps(identity)), answers

    @property
    def file(self) -> Path:
        """The path of the file."""
        return self.folder / CHECKPOINT

    def write(self, progress: TrainingProgress, stepper: Stepper, best: Mapping[str, Tensor]) -> None:
        """Replace the file by the current state, completely or not at all.

        Raises:
            UserError: the folder cannot be written to, or a weight is not finite; the old file is intact.
        """
        weights = copied(stepper.network)
        if not _is_finite(stepper.network.state_dict()):
            raise Diverged("The weights became NaN or infinite; lower lr, or clip the gradient.")
        groups = {"weights": weights, "best": best, "optimizer": tensor_file.optimizer_tensors(stepper.optimizer)}
        notes = self._notes(progress)
        if stepper.average is not None:
            groups["average"] = stepper.average.weights
            notes["averaged"] = stepper.average.steps
        if stepper.replay is not None and stepper.replay.change is not None:
            groups["change"] = {"images": stepper.replay.change}
        tensor_file.write_tensors(self.file, groups, notes)

    def finish(self, progress: TrainingProgress, best: Mapping[str, Tensor]) -> None:
        """Keep what a finished training needs: its progress and its best weights, and no state to go on from.

        Raises:
            UserError: the folder cannot be written to.
        """
        tensor_file.write_tensors(self.file, {"best": best}, {**self._notes(progress), "finished": True})

    def read(self) -> tensor_file.FileContent | None:
        """The content of the file; None without a file.

        Raises:
            UserError: the file is broken, or it belongs to another training.
        """
        content = tensor_file.read_tensors(self.file)
        if content is None:
            return None
        notes = content.notes
        same_format = notes.get("format") == _FORMAT
        differs = first_difference(notes.get("identity"), self.identity) if same_format else "format"
        if differs is not None:
            raise UserError(
                f"{self.folder} holds another training (its {differs} differs); give another --out, or the "
                "old settings."
            )
        other = UserError(
            f"{self.folder} holds another training: the weights and the code of its model are the same, but its "
            "answers before the training are not, so something else that it computes with has changed (an attribute, "
            "a helper module, a library); give another --out, or the old model."
        )
        self.answers.require(notes.get("answers"), damaged=_damaged(), other=other)
        return _with_weights(content, self.folder)

    def _notes(self, progress: TrainingProgress) -> dict[str, Any]:
        return {
            "format": _FORMAT, "identity": self.identity, "answers": self.answers.plain, "progress": asdict(progress)
        }  # fmt: skip


def drop_weights(folder: Path) -> None:
    """Let the file of a finished training refer to the model file beside it, if that has the same weights.

    Raises:
        UserError: a file is broken, or the folder cannot be written to.
    """
    content = tensor_file.read_tensors(folder / CHECKPOINT)
    if content is None or not is_finished(content) or "best" not in content.groups:
        return
    best, stored = content.groups["best"], _model_weights(folder)
    if hash_tensors(best).digest() == hash_tensors(stored).digest():
        tensor_file.write_tensors(folder / CHECKPOINT, {}, {**content.notes, "best": hash_tensors(best).hexdigest()})


def is_finished(content: tensor_file.FileContent) -> bool:
    """Whether the training of a file has ended, so that there is no state to go on from."""
    return content.notes.get("finished") is True


def _with_weights(content: tensor_file.FileContent, folder: Path) -> tensor_file.FileContent:
    """The content, with the weights of the model file if it refers to them."""
    expected = content.notes.get("best")
    if expected is None or "best" in content.groups:
        return content
    stored = _model_weights(folder)
    if hash_tensors(stored).hexdigest() != expected:
        raise UserError(
            f"{folder / MODEL_FILE}, with the weights of this finished training, is missing or was changed; "
            "put it back, or give another --out."
        )
    return content._replace(groups={**content.groups, "best": stored})


def _model_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(folder / MODEL_FILE)
    except (OSError, SafetensorError):
        return {}


def resume(
    content: tensor_file.FileContent, stepper: Stepper, steps: int
) -> tuple[TrainingProgress, dict[str, Tensor]]:
    """Bring a new training of so many steps to the state of its checkpoint; returns its progress and best weights.

    Raises:
        UserError: something is missing, or is not as a training writes it; the network is as before.
    """
    groups, notes = content
    before = copied(stepper.network)
    try:
        progress = _progress(notes["progress"], steps)
        if is_finished(content):
            _load(stepper.network, groups["best"])
            return progress, groups["best"]
        _load(stepper.network, groups["best"])  # to see whether they fit
        _load(stepper.network, groups["weights"])
        tensor_file.load_optimizer(stepper.optimizer, groups.get("optimizer", {}))
        if stepper.average is not None:
            stepper.average.load(groups["average"], notes["averaged"])
        if "change" in groups and stepper.replay is not None:
            stepper.replay.change = groups["change"]["images"].to(stepper.device)
        best = groups["best"]
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, UserError):
        put_back(stepper.network, before)
        raise _damaged() from None
    return progress, best


def _damaged() -> UserError:
    return UserError(f"{CHECKPOINT} is incomplete or damaged; remove it, or give another --out.")


def copied(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the state dict, and of the buffers that are no part of it."""
    return {name: value.detach().clone() for name, value in (network.state_dict() | _unsaved(network)).items()}


def put_back(network: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a network the values that `copied` returned; other buffers outside of its state dict stay.

    Raises:
        RuntimeError: they do not fit.
    """
    unsaved = _unsaved(network)
    network.load_state_dict({name: value for name, value in values.items() if name not in unsaved})
    with torch.no_grad():
        for name in unsaved.keys() & values.keys():
            unsaved[name].copy_(values[name])


def _unsaved(network: nn.Module) -> dict[str, Tensor]:
    saved = network.state_dict().keys()
    return {name: buffer for name, buffer in network.named_buffers() if name not in saved}


def _progress(values: dict[str, Any], steps: int) -> TrainingProgress:
    scores = {name: ValidationScore(**values[name]) for name in ("start", "best")}
    progress = TrainingProgress(**{**values, **scores})
    check_fields(progress)
    for score in (progress.start, progress.best):
        check_fields(score)
    if min(progress.step, progress.images, progress.right, progress.best_epoch) < 0 or progress.step > steps:
        raise ValueError("a count is out of range")
    return progress


def _is_finite(weights: Mapping[str, Tensor]) -> bool:
    return all(bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point())


def _load(network: nn.Module, values: Mapping[str, Tensor]) -> None:
    put_back(network, values)
    # A buffer outside of the state dict may be a mask, of which some values are infinite.
    if not _is_finite(network.state_dict()):
        raise ValueError("a weight is not finite")
