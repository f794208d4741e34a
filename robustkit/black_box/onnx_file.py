"""An ONNX file as a classifier, computed by onnxruntime on the CPU. No code of the file is run: it has none."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from robustkit import limits
from robustkit.errors import UserError
from robustkit.host.files import sha256_of
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

from .model import BlackBox, Pixels, Shared

SUFFIX = ".onnx"
_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_FREE = "a free number (dynamic_shapes)"


class OnnxModel(BlackBox):
    """A network in an ONNX file.

    Args:
        path: the file. Of its outputs with scores `[B, K]` the one called "logits" is used, or the first; without any,
            the first with labels `[B]`.
        num_classes: K, checked for scores and needed for labels.
        label_classes: K for labels where `num_classes` is not given.

    Raises:
        UserError: onnxruntime is missing, or the file is no network with one input of images.
    """

    def __init__(self, path: str | Path, *, num_classes: int | None = None, label_classes: int | None = None) -> None:
        file = user_path(path)
        session = _session(file)
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES or len(inputs[0].shape) != 4:
            found = ", ".join(f"{each.type} {each.shape}" for each in inputs)
            raise UserError(
                f"{shortened(path)} must have one input, float images [images, channels, height, width], not "
                f"{shortened(found)}; feed it in a function of yours: robustkit.BlackBox(function)."
            )
        output, labels = _output(session, file)
        super().__init__(
            _Runner(shortened(path), session, inputs[0], output), returns="labels" if labels else "logits",
            num_classes=num_classes or (label_classes if labels else None), name=file.stem,
        )  # fmt: skip
        self.code = sha256_of(file)


class _Runner:
    """Runs batches; a network that was exported for a fixed number of images gets so many at once.

    Raises:
        UserError: that number is 0.
    """

    def __init__(self, place: str, session: Any, given: Any, output: str) -> None:
        self.place, self.session, self.output, self.input = place, Shared(session), output, given.name
        self.dtype = _TYPES[given.type]
        self.fixed = given.shape[0] if isinstance(given.shape[0], int) else None
        self.proven = False  # whether it has run
        if self.fixed is not None and self.fixed < 1:
            raise UserError(f"{place} takes batches of {self.fixed} images; export it again with {_FREE}.")

    def __call__(self, images: Pixels) -> Any:
        images = images.astype(self.dtype)
        if self.fixed is None and not self.proven and len(images) > 1:
            self.fixed = self._only_one(images)
            self.proven = True
        if self.fixed is None:
            return self._run(images)
        if self.fixed * images[:1].nbytes > limits.ARRAY_BYTES:
            raise UserError(
                f"{self.place} takes batches of {self.fixed:,} images, more than {limits.ARRAY_BYTES // limits.MIB:,} "
                f"MiB; export it again with {_FREE}."
            )
        parts = [images[start : start + self.fixed] for start in range(0, len(images), self.fixed)]
        return np.concatenate([self._run(self._filled(part))[: len(part)] for part in parts])

    def _filled(self, part: Any) -> Any:
        assert self.fixed is not None
        return np.concatenate([part, np.repeat(part[:1], self.fixed - len(part), 0)])

    def _only_one(self, images: Any) -> int | None:
        """1 if the network says that it takes any number of images, and takes one only; else None."""
        try:
            self._run(images[:2])
        except UserError:
            self._run(images[:1])
            return 1
        return None

    def _run(self, images: Any) -> Any:
        try:
            return self.session.value.run([self.output], {self.input: images})[0]
        except Exception as error:  # onnxruntime has a class of its own for each status
            reason = shortened(str(error).rpartition(" was false. ")[2].rpartition("] : ")[2]).rstrip(".")
            raise UserError(
                f"{self.place} cannot be run on images {list(images.shape)} ({reason}); if it was "
                f"exported for another number of images, export it again with {_FREE}."
            ) from None


def _session(file: Path) -> Any:
    if not file.is_file():
        raise no_file(f"There is no file {shortened(file)}", file, "check the path of the model")
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what goes wrong is said below, in one line
    try:
        return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # onnxruntime has a class of its own for each status
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"onnxruntime cannot load {shortened(file)} ({shortened(reason).rstrip('.')}); copy it again, with the "
            "files beside it that hold its weights, or export it for this version of onnxruntime."
        ) from None


def _runtime() -> ModuleType:
    try:
        import onnxruntime
    except ImportError:
        raise UserError("An ONNX file needs onnxruntime; install it: pip install onnxruntime.") from None
    return onnxruntime  # type: ignore[no-any-return]


def _output(session: Any, file: Path) -> tuple[str, bool]:
    """The name of the output that classifies, and whether it holds labels."""
    outputs = session.get_outputs()
    scores = [each.name for each in outputs if each.type in _TYPES and len(each.shape) == 2]
    labels = [each.name for each in outputs if each.type == "tensor(int64)" and len(each.shape) == 1]
    if scores or labels:
        return "logits" if "logits" in scores else (scores or labels)[0], not scores
    raise UserError(
        f"{shortened(file)} has no output with scores [images, classes] or labels [images]; feed it in a function of "
        "yours: robustkit.BlackBox(function)."
    )
