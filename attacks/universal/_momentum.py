"""The steps that universal attacks share: along a decaying sum of gradients, each shorter than the one before."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.universal import UniversalAttack, UniversalState


@dataclass(frozen=True)
class SharedMomentumState(UniversalState):
    """The state of an attack with momentum."""

    momentum: Tensor  # [*P] decaying sum of gradients, each divided by its mean size


@dataclass(frozen=True)
class SharedMomentumAttack(UniversalAttack):
    """Base of universal attacks that climb along a decaying sum of gradients.

    Args:
        step_size: length of the first step, as a share of the largest allowed change; the last one is near zero.
        decay: factor of the sum before each gradient is added; 0 uses the gradient of each mini-batch alone.
    """

    _: KW_ONLY
    step_size: float = 0.5
    decay: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("step_size")
        self.share("decay")

    @abstractmethod
    def moved(self, perturbation: Tensor, direction: Tensor, length: float) -> Tensor:
        """The allowed perturbation nearest to the end of a step; `length` is a share of the largest change."""

    def begun(self, perturbation: Tensor) -> SharedMomentumState:
        """The state before the first step, at `perturbation`."""
        return SharedMomentumState(perturbation, 0, torch.zeros_like(perturbation))

    def step(self, state: UniversalState, grad: Tensor) -> SharedMomentumState:
        assert isinstance(state, SharedMomentumState)
        scale = grad.abs().mean().clamp(min=torch.finfo(grad.dtype).tiny)
        momentum = self.decay * state.momentum + (grad / scale).to(state.momentum)
        length = self.step_size * (1 - state.steps / self.steps)
        return SharedMomentumState(self.moved(state.perturbation, momentum, length), state.steps + 1, momentum)
