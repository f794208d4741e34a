"""A server's JSON as scores or a label. It may hold anything, so everything else is refused in one line."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError

from .answers import logarithms, one_class

_SCORES = ("logits", "scores", "probabilities")
_LABEL = "label"
Read = Callable[[Any], "Sequence[float] | int | str"]


class Reply(NamedTuple):
    """What a server said about one picture."""

    gives: str  # "scores" or "labels"
    scores: Tensor  # [K]; of a label 1 for its class and -1 for all others


class ReplyFormat(NamedTuple):
    """What is known about a server's answers before the first one.

    Args:
        name: of the model, for errors.
        classes: K; None where the first scores show it.
        fewest: K is at least so many; K of labels where it is not known.
        class_names: that a label may be one of, by number.
        read: takes the JSON and returns scores or a label; None for the usual forms.
    """

    name: str
    classes: int | None
    fewest: int
    class_names: Sequence[str] = ()
    read: Read | None = None

    def reply(self, body: bytes) -> Reply:
        """The answer in a body.

        Raises:
            UserError: there is none.
        """
        value = self._json(body)
        if self.read is not None:
            return self._reply(self.read(value), probabilities=False)
        if isinstance(value, dict):
            key = next((key for key in (*_SCORES, _LABEL) if key in value), None)
            if key is None:
                raise self._wrong(f"has none of the keys {', '.join((*_SCORES, _LABEL))}")
            reply = self._reply(value[key], probabilities=key == "probabilities")
            if key != _LABEL and _LABEL in value:
                self._require_same_class(reply, value[_LABEL])
            return reply
        return self._reply(value, probabilities=False)

    def _json(self, body: bytes) -> Any:
        try:
            return json.loads(body, parse_constant=_refuse)
        except _NotFiniteError:
            raise self._wrong("holds NaN or infinity") from None
        except (ValueError, RecursionError):  # also what is no UTF-8
            raise self._wrong("is not JSON") from None

    def _reply(self, value: Any, *, probabilities: bool) -> Reply:
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            label = torch.tensor([self._label(value)], device="cpu")
            return Reply("labels", one_class(label, self._labels)[0])
        numbers = list(value) if isinstance(value, Sequence) else []
        if len(numbers) < 2 or not all(type(each) in (int, float) for each in numbers):
            raise self._wrong("has neither a list of numbers, one for each class, nor a label")
        if len(numbers) < self.fewest or self.classes not in (None, len(numbers)):
            raise self._wrong(f"has {len(numbers):,} scores, but there are {self._labels} classes (--num-classes)")
        if len(numbers) > limits.CLASSES:
            raise self._wrong(f"has {len(numbers):,} scores, more than {limits.CLASSES:,}")
        if not all(_is_finite(each) for each in numbers):
            raise self._wrong("holds NaN or infinity")
        scores = torch.tensor([float(each) for each in numbers], dtype=torch.float64, device="cpu")
        return Reply("scores", (logarithms(scores[None], self.name)[0] if probabilities else scores).float())

    def _require_same_class(self, reply: Reply, label: Any) -> None:
        """Refuse a label, if it names a class of the data, beside scores that are largest for another class."""
        known = type(label) is int or (isinstance(label, str) and label in self.class_names)
        if known and self._label(label) != int(reply.scores.argmax()):
            raise self._wrong("has a label that is not the class of the largest score")

    def _label(self, value: int | str) -> int:
        if isinstance(value, str):
            if value not in self.class_names:
                raise self._wrong("has a label that is not a class of the data")
            return list(self.class_names).index(value)
        if not 0 <= value < self._labels:
            raise self._wrong(f"has a label outside of 0 to {self._labels - 1} (--num-classes)")
        return value

    @property
    def _labels(self) -> int:
        return self.classes or self.fewest

    def _wrong(self, what: str) -> UserError:
        """The error for an answer. It repeats nothing of the answer, which may echo the request with its token."""
        return UserError(
            f'The answer of {self.name} {what}; it must be JSON such as {{"scores": [0.1, 2.5]}} or {{"label": 1}}, or '
            "read by a function of yours."
        )


class _NotFiniteError(ValueError):
    """JSON with NaN or infinity, which Python accepts and the standard does not."""


def _refuse(text: str) -> float:
    raise _NotFiniteError


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(torch.tensor(float(value), dtype=torch.float32, device="cpu").item())
    except OverflowError:  # a whole number beyond every float
        return False
