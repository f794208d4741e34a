"""The second protocol: perturbations that are fitted to many images and then put on others.

    init(shape) -> state                      the perturbation before the first step
    apply(perturbations, x, key) -> images    where the model is queried: differentiable in the perturbations
    (the engine queries the model, and adds up the gradients of a mini-batch)
    step(state, grad) -> state                pure: the next perturbation
    judged(perturbation, x, key, ...)         the images that the unmodified model judges

Attacks on single images (`protocol.py`) keep their rows apart; here the rows of a mini-batch share one perturbation.
The rest is the same: an attack never calls a model, never loops over steps and never draws from a global generator.
"""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.ball import NormName
from robustkit.primitives.checked_fields import CheckedFields
from robustkit.primitives.rounding import Bounds

_LOG_ODDS = losses.LOSSES["log-odds"]


def _softplus(values: Tensor) -> Tensor:
    # torch's own softplus rounds the last elements of a batch otherwise than the rest.
    return torch.stack([torch.zeros_like(values), values], 1).logsumexp(1)


# The same values as softmax and logarithm, and gradients that do not vanish in fp32 on confident models.
_CROSS_ENTROPY = losses.Loss(
    "ce",
    lambda logits, y: _softplus(_LOG_ODDS.untargeted(logits, y)),
    lambda logits, y, target: -_softplus(-_LOG_ODDS.targeted(logits, y, target)),
)


@dataclass(frozen=True)
class UniversalState:
    """The part of the state that the engine reads."""

    perturbation: Tensor  # [*P]
    steps: int  # taken so far


@dataclass(frozen=True)
class UniversalAttack(CheckedFields, ABC):
    """Base of attacks that fit one perturbation to many images.

    Args:
        steps: gradient steps, each on one mini-batch.
        batch: images of a mini-batch.
        draws: how often each image of a mini-batch is queried; with more than one, at different places.
        loss: "ce", "log-odds", "margin", "dlr", or one of your own as in `losses.loss`.
        clip: the loss of an image counts up to this value; images that are broken beyond it do not steer the rest.

    Raises:
        UserError: a value is out of range; the sentence names it.
    """

    _: KW_ONLY
    steps: int = 250
    batch: int = 64
    draws: int = 1
    loss: str | losses.LossFunction = "ce"
    clip: float = 9.0  # Shafahi et al. 2020

    norms: ClassVar[tuple[NormName, ...]] = ()  # of its radius; empty for an attack without one

    def __post_init__(self) -> None:
        self.at_least(1, "steps", "batch", "draws")
        self.positive("clip")
        _ = self.climbed

    @cached_property
    def climbed(self) -> losses.Loss:
        """The loss that is maximised.

        On one image cross-entropy and log-odds point alike. In a sum over images they do not: cross-entropy weighs
        an image by how near it is to an error, log-odds all images alike.
        """
        return _CROSS_ENTROPY if self.loss == "ce" else losses.loss(self.loss)

    @property
    def placed(self) -> bool:
        """Whether `apply` draws a place for each image, so that an image can be judged many times."""
        return False

    def objective(self, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """`[B]` the value that is maximised, from logits `[B, K]`; `target` is -1 where any wrong class will do."""
        return self.climbed(logits, y, target).clamp(max=self.clip)

    @abstractmethod
    def init(self, shape: tuple[int, ...]) -> UniversalState:
        """The state before the first step, for images of this shape.

        Raises:
            UserError: the perturbation does not fit such images.
        """

    @abstractmethod
    def apply(self, perturbations: Tensor, x: Tensor, key: Tensor) -> Tensor:
        """`[B, *S]` images in [0, 1] with a perturbation each, row by row.

        Args:
            perturbations: `[B, *P]`.
            x: `[B, *S]` clean images in [0, 1].
            key: `[B]` int64 noise streams, from which places are drawn.
        """

    @abstractmethod
    def step(self, state: UniversalState, grad: Tensor) -> UniversalState:
        """The state after one mini-batch; `grad` `[*P]` is the gradient of the sum of its objectives."""

    def judged(self, perturbation: Tensor, x: Tensor, key: Tensor, original: Tensor, bounds: Bounds) -> Tensor:
        """`[B, *S]` the images that are judged, in the units and the type of `original`.

        Values that the perturbation leaves alone are those of `original`, bit for bit.

        Args:
            perturbation: `[*P]`.
            x: `[B, *S]` clean images in [0, 1], scaled and rounded copies of `original`.
            key: `[B]` int64 noise streams.
            original: `[B, *S]` the caller's images.
            bounds: their range.
        """
        points = self.apply(perturbation.expand(len(x), *perturbation.shape), x, key)
        low, high = bounds
        own = (low + points.to(original) * (high - low)).clamp(low, high)
        return original.where(points == x, own)
