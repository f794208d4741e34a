"""What a network answers before its training, by which a stored training recognises the network that it began with.

Its fingerprint says nothing of lists, private attributes, tensors that are no buffers, and global values.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.evaluation.answers import Probes
from robustkit.evidence.rows import AnswerRecord

_NAME = "start"


@dataclass(frozen=True, eq=False)
class FirstAnswers:
    """The answers of a network at some images and at noise.

    Args:
        model: as it is before the training.
        data: images.
    """

    model: nn.Module
    data: Dataset

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The answers as plain values; asked for once, so before the training."""
        record = self._probes.record("model", self._classifier)
        return {"images": record.images, "logits": record.logits.hex()}

    def require(self, stored: Any, *, damaged: UserError, other: UserError) -> None:
        """Check that the network gives stored answers, up to rounding; trainings of older versions have none.

        Raises:
            UserError: `damaged` if these are no answers, `other` if the network gives others.
        """
        if stored is None or stored == self.plain:
            return
        try:
            record = AnswerRecord("model", _NAME, int(stored["images"]), bytes.fromhex(stored["logits"]))
            agrees = self._probes.agrees(record, self._classifier)
        except (LookupError, TypeError, ValueError):
            raise damaged from None
        if not agrees:
            raise other

    @property
    def _probes(self) -> Probes:
        return Probes(self.data, range(len(self.data)))

    @property
    def _classifier(self) -> Classifier:
        return Classifier(self.model, name=_NAME)
