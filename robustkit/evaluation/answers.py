"""What a network answers at fixed points: a fingerprint that no attribute, helper module or setting escapes.

Weights and code are hashed, but a forward may read anything. So the logits at some of the run's images and at noise
are stored with the evidence, and compared before it is continued or shown again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.generators import reseed
from robustkit.classifier.isolation import answering
from robustkit.classifier.logit_sizes import sizes
from robustkit.classifier.logits import logits_of
from robustkit.classifier.sanity_checks import checked_batch
from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.evidence.rows import AnswerRecord
from robustkit.evidence.store import Store
from robustkit.primitives import noise

_MOST = 64  # points, half of them images of the run
_MOST_LARGE = 16  # of images of more values than
_LARGE = 3 * 64 * 64
_NOISE = 7  # key of the noise
# Of the sizes of the logits. Threads, kernels and instruction sets moved those of four torchvision networks by up to
# 7e-6 of it.
_TOLERANCE = 1e-4
_NUDGE = 1e-6  # of the range of pixels: rounding moves the values inside a network about as much
_NUDGES = 8
_SLACK = 4  # a nudge moves an answer as far as rounding does, give or take this factor


@dataclass(frozen=True)
class Probes:
    """The points at which the models of a run are queried.

    Args:
        data: of the run.
        ids: numbers of the run's images, in the order of work.
        avoided: images that end the process: models are queried at those before the first of them.
    """

    data: Dataset
    ids: Sequence[int]
    avoided: Collection[int] = ()

    def record(self, role: str, classifier: Classifier) -> AnswerRecord:
        """The answers of a model, as they are stored.

        Args:
            role: "model" or "surrogate"; a network may be both.
            classifier: the model.
        """
        before = takewhile(lambda image: image not in self.avoided, self.ids[:_MOST])
        points = self._points(len(list(before)))
        logits = answers(classifier, points)
        images = len(points) - _half(points)
        return AnswerRecord(role, classifier.name, images, logits.float().numpy().astype("<f4").tobytes())

    def check(self, store: Store, role: str, classifier: Classifier) -> None:
        """Check that a model answers as it did when the evidence was made; older runs have no answers to compare.

        Raises:
            UserError: it does not.
        """
        record = store.answer(role, classifier.name)
        if record is not None and not self.agrees(record, classifier):
            raise UserError(
                f"This run folder holds results of another {role} {classifier.name}: its weights and source are the "
                "same, but its answers to the same images are not, so something else that it computes with has "
                "changed (a helper module, a setting, a library). Give another --out, or the old code."
            )

    def agrees(self, record: AnswerRecord, classifier: Classifier) -> bool:
        """Whether a model gives the stored answers, up to rounding."""
        points = self._points(record.images)
        before = _stored(record, len(points))
        now = answers(classifier, points)
        return before is not None and before.shape == now.shape and self._agree(classifier, points, before, now)

    def _agree(self, classifier: Classifier, points: Tensor, before: Tensor, now: Tensor) -> bool:
        rounding = max(_TOLERANCE, 16 * torch.finfo(classifier.input_format().dtype).eps)
        size = sizes(before)
        differences = _distance(before, now, size)
        if bool((differences <= rounding).all()):
            return True
        # Where a network rounds its own values, the last bit of one can move an answer far: see how far it moves here.
        moved = torch.zeros_like(differences)
        for draw in range(_NUDGES):
            signs = noise.signs(_keys(len(points)), draw + 1, points.shape[1:])
            nudged = answers(classifier, (points + _NUDGE * signs).clamp(0, 1))
            moved = torch.maximum(moved, _distance(nudged, now, size))
        return bool((differences <= rounding + _SLACK * moved).all())

    def _points(self, count: int) -> Tensor:
        """The first so many images of the run, but no more than are asked about, and noise of their shape."""
        few = max(1, min(count, _MOST_LARGE // 2))
        first = self._read(self.ids[:few])
        rest = self.ids[few : min(count, _half(first))]
        images = torch.cat([first, self._read(rest)]) if rest else first
        return torch.cat([images[:count], _noise(_half(images), images.shape[1:]).to(images)])

    def _read(self, part: Sequence[int]) -> Tensor:
        return checked_batch(self.data, part)[0]


def _half(images: Tensor) -> int:
    return (_MOST if images[0].numel() <= _LARGE else _MOST_LARGE) // 2


def answers(classifier: Classifier, points: Tensor) -> Tensor:
    """`[n, K]` logits of the unmodified model at points in [0, 1], on the CPU; of a randomized model with one seed."""
    given = classifier.input_format()
    with answering(classifier.model, given.device), torch.no_grad():
        reseed(0)
        return logits_of(classifier.model(given.fed(given.moved(points)))).detach().cpu()


def _distance(one: Tensor, other: Tensor, size: Tensor) -> Tensor:
    """`[n]` largest difference of two answers, as a share of the size of the logit; equal infinities do not differ."""
    difference = torch.where(one.eq(other) | (one.isnan() & other.isnan()), 0, (one - other).abs() / size)
    return difference.nan_to_num(nan=torch.inf).amax(1)


def _noise(count: int, shape: Sequence[int]) -> Tensor:
    """Noise of many strengths around grey levels from black to white."""
    key, levels = _keys(count), torch.linspace(0, 1, count, device="cpu").reshape(-1, *[1] * len(shape))
    return (levels + (noise.uniform(key, 0, shape) - 0.5) * levels.flip(0).add(0.1)).clamp(0, 1)


def _keys(count: int) -> Tensor:
    return noise.keys(_NOISE, torch.arange(count, device="cpu"))


def _stored(record: AnswerRecord, count: int) -> Tensor | None:
    """The logits `[count, K]` of a record; None if it holds anything else."""
    size = 4 * count
    if not record.logits or len(record.logits) % size:
        return None
    return torch.frombuffer(bytearray(record.logits), dtype=torch.float32).reshape(count, -1)
