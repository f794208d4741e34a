"""How far a training is: all that it takes to go on bit for bit, and how it is kept on disk."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.primitives import registry

from ..inner_attack.diverged import Diverged
from ..inner_attack.specification import Inner
from ..weights.average import Average
from . import keeping
from .recipe import Recipe
from .selection import ValidationScore
from .stepping import Stepper

_FORMAT = 1
_FILE = "training.safetensors"


@dataclass
class TrainingProgress:
    """What a training has come to."""

    step: int = 0  # of the optimizer
    rows: list[dict[str, Any]] = field(default_factory=list)  # the history, an epoch each
    start: ValidationScore = field(default_factory=lambda: ValidationScore(0, 0, 0))
    best: ValidationScore = field(default_factory=lambda: ValidationScore(0, 0, 0))
    best_epoch: int = 0  # 0 is the start
    warmup: float = 0.0  # share of the steps in which the radius grows
    rolled_back: list[int] = field(default_factory=list)  # epochs, from 1
    notes: list[str] = field(default_factory=list)
    # of the epoch so far
    loss: float = 0.0  # summed over images
    right: int = 0
    images: int = 0
    seconds: float = 0.0

    def note(self, text: str) -> bool:
        """Remember a sentence; whether it is new."""
        if text in self.notes:
            return False
        self.notes.append(text)
        return True


class TrainingFile:
    """A training's file.

    Args:
        folder: where it lies.
        identity: what the training depends on; another one is refused.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder, self.identity = folder, json.loads(json.dumps(identity))

    @property
    def file(self) -> Path:
        """The file itself."""
        return self.folder / _FILE

    def write(self, progress: TrainingProgress, stepper: Stepper, best: Mapping[str, Tensor]) -> None:
        """Keep everything, whole or not at all.

        Raises:
            UserError: the folder cannot be written, or a weight is no longer a number; the old file is intact.
        """
        weights = copied(stepper.network)
        if not all(bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()):
            raise Diverged("The weights became NaN or infinite; lower lr, or clip the gradient.")
        groups = {"weights": weights, "best": best, "optimizer": keeping.flattened(stepper.optimizer)}
        notes = {"format": _FORMAT, "identity": self.identity, "progress": asdict(progress)}
        if stepper.average is not None:
            groups["average"] = stepper.average.weights
            notes["averaged"] = stepper.average.steps
        if stepper.replay is not None and stepper.replay.change is not None:
            groups["change"] = {"images": stepper.replay.change}
        keeping.keep(self.file, groups, notes)

    def read(self) -> keeping.FileContent | None:
        """What the file holds; None without a file.

        Raises:
            UserError: the file is broken, or it is of another training.
        """
        found = keeping.kept(self.file)
        if found is None:
            return None
        notes = found.notes
        differs = difference(notes.get("identity"), self.identity) if notes.get("format") == _FORMAT else "format"
        if differs is not None:
            raise UserError(
                f"{self.folder} holds another training (its {differs} differs); give another --out, or the "
                "old settings."
            )
        return found


def resumed(found: keeping.FileContent, stepper: Stepper) -> tuple[TrainingProgress, dict[str, Tensor]]:
    """Bring a fresh training to where its file was written: its progress and best weights.

    Raises:
        UserError: something is missing.
    """
    groups, notes = found
    before = copied(stepper.network)
    try:
        progress = _progress(notes["progress"])
        stepper.network.load_state_dict(groups["weights"])
        keeping.restored(stepper.optimizer, groups.get("optimizer", {}))
        if stepper.average is not None:
            stepper.average.load(groups["average"], notes["averaged"])
        if "change" in groups and stepper.replay is not None:
            stepper.replay.change = groups["change"]["images"].to(stepper.device)
        best = groups["best"]
    except (KeyError, TypeError, ValueError, RuntimeError):
        stepper.network.load_state_dict(before)
        raise UserError(f"{_FILE} is not whole; remove it, or give another --out.") from None
    return progress, best


def identity_of(
    network: nn.Module, data: Dataset, held_out: Dataset, inner: Inner, recipe: Recipe, processes: int
) -> dict[str, Any]:
    """All that a training's result depends on, in plain values; the network as it is before."""
    digest = hashlib.sha256(type(network).__name__.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    frozen = [name for name, weight in network.named_parameters() if not weight.requires_grad]
    return {
        "model": digest.hexdigest(),
        "frozen": frozen,
        "recipe": asdict(recipe),
        "attack": _described(inner),
        "training images": data.fingerprint(range(len(data))),
        "validation images": held_out.fingerprint(range(len(held_out))),
        "number of processes": processes,
    }


def likeness_of(network: nn.Module, data: Dataset, held_out: Dataset, inner: Inner, recipe: Recipe) -> dict[str, Any]:
    """What the processes of one training must have in common, at no cost: images by their labels, no weight's value."""
    return {
        "model": [(name, list(weight.shape), weight.requires_grad) for name, weight in network.named_parameters()],
        "recipe": asdict(recipe),
        "attack": _described(inner),
        "training images": hashlib.sha256(data.labels.cpu().numpy().tobytes()).hexdigest(),
        "validation images": hashlib.sha256(held_out.labels.cpu().numpy().tobytes()).hexdigest(),
    }


def copied(network: nn.Module) -> dict[str, Tensor]:
    """The state dict in storage of its own."""
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def fresh_average(network: nn.Module, recipe: Recipe) -> Average | None:
    """The average that a recipe asks for, of the weights as they are."""
    return None if recipe.ema is None else Average(network, recipe.ema)


def _described(inner: Inner) -> dict[str, Any]:
    ball = inner.attack.ball
    return registry.described(inner.attack) | {"norm": ball.norm, "eps": ball.eps, "replays": inner.replays}


def _progress(values: dict[str, Any]) -> TrainingProgress:
    return TrainingProgress(
        **{**values, "start": ValidationScore(**values["start"]), "best": ValidationScore(**values["best"])}
    )


def difference(old: Any, new: Mapping[str, Any]) -> str | None:
    """What two identities differ in first, in words."""
    if not isinstance(old, dict) or set(old) != set(new):
        return "format"
    for key, value in new.items():
        if old[key] != value:
            if isinstance(value, dict) and isinstance(old[key], dict):
                own = [name for name in value if old[key].get(name) != value[name]]
                return f"{key}, {own[0]}," if own else key
            return key
    return None
