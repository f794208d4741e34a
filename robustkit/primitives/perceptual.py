"""The base of attacks in LPIPS: besides the gradient they see the features of each query."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.errors import UserError
from robustkit.primitives.ascent import LossAttack
from robustkit.primitives.ball import Ball
from robustkit.primitives.lpips_ball import FeatureMap, Lpips
from robustkit.primitives.protocol import Attack, Seen, State, Trials, begin
from robustkit.primitives.rows import along

OWN = "self"
OVERSHOOT = 0.01  # of the radius, in a step back; the authors lose 0.1 of their 0.5
CONFIDENCE = 1.0  # loss beyond which more of it is worth nothing; kappa of the authors' code


@dataclass(frozen=True)
class PerceptualSeen(Seen):
    """The model's answer to a perceptual attack."""

    features: Tensor  # [B, F] normalised features at the query


@dataclass(frozen=True)
class PerceptualState(State):
    """The state of an attack whose first query is the image itself."""

    clean: Tensor  # [B, F] features of the image; zero before the first query


@dataclass(frozen=True)
class PerceptualAttack(LossAttack):
    """Base of attacks within an LPIPS distance.

    Args:
        network: whose features are compared: "self" is the attacked model, else a module that takes pixels, or a name
            of `robustkit.load_model`, such as "path/file.py:function".
        weights: of a network that is named: a file, or "default" for published ones.
        layers: names of layers of that network, joined by "+"; None takes `layer1`, `layer2`, ... where it has them, as
            in the paper, else the outputs of all activations.
    """

    _: KW_ONLY
    loss: str = "margin"
    network: str | nn.Module = OWN
    weights: str | None = None
    layers: str | None = None
    features: FeatureMap | None = field(default=None, repr=False, compare=False)  # of a session, no hyper-parameter

    norms = ("lpips",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.network, (str, nn.Module)):
            raise UserError(f"network is a name or a module, not {type(self.network).__name__}.")
        if self.weights is not None and (self.network == OWN or isinstance(self.network, nn.Module)):
            raise UserError(
                "weights are for a network that network=NAME names; a module and the attacked model have their own: "
                "leave out weights."
            )

    @cached_property
    def ball(self) -> Ball:
        measured = super().ball
        return replace(measured, features=self.features) if isinstance(measured, Lpips) else measured

    def with_features(self, features: FeatureMap) -> Self:
        """The attack in a session."""
        return replace(self, features=features)

    def inside(self, state: State, seen: Seen, rows: Tensor) -> Tensor:
        assert isinstance(seen, PerceptualSeen)
        assert isinstance(state, PerceptualState)
        query, started = state.query[rows], state.queries[rows] > 0
        near = self.distance(state, seen.features)[rows] <= self.ball.eps
        return near & started & ((query >= 0) & (query <= 1)).flatten(1).all(1)

    def distance(self, state: PerceptualState, features: Tensor) -> Tensor:
        """`[B]` LPIPS distances of points with these features."""
        away: Tensor = (features - state.clean.to(features)).norm(dim=1)
        return away

    def capped_loss(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the loss up to `CONFIDENCE`."""
        return self.objective(logits, trials).clamp(max=CONFIDENCE)

    def at_image(self, trials: Trials) -> PerceptualState:
        """The state whose first query is the image itself."""
        return PerceptualState(**vars(begin(trials, trials.x)), clean=self.no_features(trials.x))

    def stepped_back(self, points: Tensor, excess: Tensor, slope: Tensor) -> Tensor:
        """`[B, *S]` the points after one step of Newton back into the ball; those inside stay.

        Args:
            points: `[B, *S]`.
            excess: `[B]` distance less radius.
            slope: `[B, *S]` gradient of the distance.
        """
        squared = slope.flatten(1).square().sum(1).clamp(min=1e-12)
        length = torch.where(excess > 0, excess + OVERSHOOT * self.ball.eps, 0) / squared
        return (points - along(length.to(slope), slope) * slope).clamp(0, 1)

    def no_features(self, x: Tensor) -> Tensor:
        """`[B, F]` zeros, a row for each image `[B, *S]`."""
        assert self.features is not None, "a perceptual attack outside of a session"
        with torch.no_grad():
            return x.new_zeros(len(x), self.features.size)

    @abstractmethod
    def perceptual_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        """`[B]` the value whose gradient is asked for, from logits `[B, K]` and features `[B, F]`."""


def require_no_features(attack: Attack) -> None:
    """Refuse an attack that compares features, for a randomized model.

    Raises:
        UserError: it is one.
    """
    if isinstance(attack, PerceptualAttack):
        raise UserError(
            f"{type(attack).__name__} compares the features of images, and this model has no fixed ones: it is "
            "randomized; take a norm for it."
        )
