"""The checkpoint of a fit of one perturbation: after a kill, the same call goes on with the same bits."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from robustkit.classifier.logit_sizes import sizes
from robustkit.errors import UserError
from robustkit.host.files import replace_file
from robustkit.models.fingerprint import fingerprint
from robustkit.models.hashing import hash_tensors
from robustkit.primitives import registry
from robustkit.primitives.universal import UniversalAttack, UniversalState

_SECONDS = 30.0  # between two checkpoints
_NOTES = "robustkit.fit"
_ROUNDING = 1e-3  # of the size of the logits: threads, kernels and instruction sets move them by less

S = TypeVar("S", bound=UniversalState)


@dataclass
class FitCheckpoint:
    """The file of a fit.

    Args:
        path: of the file; None keeps nothing.
        identity: what the result depends on, as `fit_identity` says.
        answers: `[n, K]` of the model, which may depend on more than the identity knows.
    """

    path: Path | None
    identity: str
    answers: Tensor
    _written: float = field(default_factory=time.monotonic)

    def resumed(self, state: S) -> S:
        """The state in the file; `state`, which is that before the first step, where there is none.

        Raises:
            UserError: the file is damaged, or of another fit.
        """
        from safetensors import SafetensorError, safe_open

        if self.path is None or not self.path.exists():
            return state
        try:
            with safe_open(self.path, "pt") as file:
                notes: dict[str, Any] = json.loads((file.metadata() or {})[_NOTES])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            values = {**notes["values"], **tensors}
            other = notes["identity"] != self.identity or not self._agrees(notes.get("answers"))
            if not other and set(values) != {each.name for each in fields(state)}:
                raise KeyError
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            raise UserError(f"{self.path} is not a checkpoint of a fit; remove it.") from None
        if other:
            raise UserError(
                f"{self.path} is the checkpoint of another fit (images, model, attack, target or seed differ); remove "
                "it, or give another --out."
            )
        return replace(state, **values)

    def keep(self, state: UniversalState, *, now: bool = False) -> None:
        """Write the state, if the last time is some time ago, or `now`.

        Raises:
            UserError: the file cannot be written.
        """
        from safetensors.torch import save

        if self.path is None or not (now or time.monotonic() - self._written >= _SECONDS):
            return
        values = {each.name: getattr(state, each.name) for each in fields(state)}
        tensors = {name: value.detach().cpu().contiguous() for name, value in values.items()
                   if isinstance(value, Tensor)}  # fmt: skip
        plain = {key: values[key] for key in values.keys() - tensors.keys()}
        notes = {"identity": self.identity, "answers": self.answers.tolist(), "values": plain}
        try:
            replace_file(self.path, [save(tensors, {_NOTES: json.dumps(notes)})])
        except OSError as error:
            raise UserError(f"{self.path} cannot be written ({error.strerror}); give another --out.") from None
        self._written = time.monotonic()

    def _agrees(self, stored: Any) -> bool:
        """Whether the model answers as it did, up to rounding; checkpoints of older versions have no answers."""
        if stored is None:
            return True
        before = torch.tensor(stored, device="cpu").to(self.answers)
        return before.shape == self.answers.shape and bool(
            ((before - self.answers).abs() <= _ROUNDING * sizes(self.answers)).all()
        )

    def remove(self) -> None:
        """Remove the file: the fit is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def fit_identity(
    model: nn.Module, attack: UniversalAttack, settings: Mapping[str, object], images: Mapping[str, Tensor]
) -> str:
    """A hash of what the result of a fit depends on, but for versions of libraries.

    Args:
        model: its structure, weights and code.
        attack: its hyper-parameters, and its code if it is the user's own.
        settings: plain values.
        images: and labels.
    """
    threat = {each.name: getattr(attack, each.name) for each in fields(attack) if each.name in ("norm", "eps")}
    described = {key: str(value) for key, value in {**settings, **threat, **registry.described(attack)}.items()}
    digest = hash_tensors(dict(images), prefix=json.dumps(described, sort_keys=True))
    return hashlib.sha256(digest.digest() + fingerprint(model).encode()).hexdigest()
