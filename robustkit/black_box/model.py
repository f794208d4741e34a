"""A classifier that only answers: images in, scores or labels out, and no gradients.

It is a module for one reason: everything that takes a model takes it, too.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustkit import limits
from robustkit.errors import UserError
from robustkit.primitives.reachable_code import code_of

from .answers import Returns, scores_of

Pixels = NDArray[np.float32]  # [B, C, H, W], in the range of the model
Gives = Literal["scores", "labels"]


class BlackBox(nn.Module):
    """A Python function as a classifier.

    Args:
        function: takes a numpy array of images, `[B, C, H, W]` float32 in [0, 1], and returns an array, a tensor or a
            list with one row for each image.
        returns: what the rows are: "logits" or "probabilities" `[B, K]`, or "labels" `[B]`, whole numbers from 0.
        num_classes: K; needed for labels, and checked for scores.
        name: what reports call it; by default the function's name.

    Raises:
        UserError: `function` cannot be called, or an argument is out of range.
    """

    metered: ClassVar[bool] = False  # whether each query costs something: none is made twice, or to fill a batch

    def __init__(
        self,
        function: Callable[[Pixels], Any],
        *,
        returns: Returns = "logits",
        num_classes: int | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        check_function(function, returns, num_classes)
        self.returns, self.num_classes = returns, num_classes
        self.name = name or str(getattr(function, "__name__", type(function).__name__.lower())).strip("<>")
        self.code = code_of(function)  # part of a run's identity
        self._function = Shared(function)
        self._classes = Shared(num_classes)  # of the first answer where the user does not say
        # Without any value: it says on which device the answers are wanted, as weights do for other models.
        self.place = nn.Parameter(torch.empty(0, device="cpu"), requires_grad=False)

    @property
    def gives(self) -> Gives:
        """What an attack may see."""
        return "labels" if self.returns == "labels" else "scores"

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Scores `[B, K]` of images; for labels 1 for the class and -1 for all others."""
        answer = self._function.value(x.detach().cpu().float().numpy())
        scores = scores_of(answer, self.returns, len(x), self._classes.value, self.name)
        self._classes.value = scores.shape[1]
        return scores.to(x.device)


class Shared:
    """A value that copies of a model share: sessions, sockets and functions of the user cannot be copied."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        return self


def check_function(function: object, returns: str, num_classes: int | None) -> None:
    """Refuse arguments of a black box that cannot be meant.

    Raises:
        UserError: one is out of range.
    """
    if not callable(function):
        raise UserError(f"BlackBox takes a function of images, not {type(function).__name__}.")
    if returns not in get_args(Returns):
        raise UserError(f"returns must be logits, probabilities or labels, not {limits.shown(returns)}.")
    if num_classes is not None:
        check_classes(num_classes)
    if returns == "labels" and num_classes is None:
        raise UserError("Labels do not say how many classes there are; give num_classes (--num-classes).")


def check_classes(num_classes: object) -> None:
    """Refuse what is no number of classes.

    Raises:
        UserError: it is none.
    """
    if type(num_classes) is not int or num_classes < 2:
        raise UserError(f"num_classes must be a whole number of at least 2, not {limits.shown(num_classes)}.")
    limits.require_at_most("num_classes", num_classes, limits.CLASSES)
