"""The shared part of additive noise of any distribution: random directions, each as long as the ball allows."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives.ball import levelled
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._walk import Walk

_LONGEST = 16.0  # longest noise, in units of the range of pixels: the box has then clipped most of its values


@dataclass(frozen=True)
class NoiseWalk(Walk):
    """Base of the attacks that add noise to an image and clip the result to [0, 1].

    Args:
        queries: forward passes per trial, at least 2; foolbox calls them repeats.
        steps: number of lengths at which each noise is queried, from short to long.
        halvings: queries of the bisection after an error.
    """

    _: KW_ONLY
    queries: int = 100
    steps: int = 1
    halvings: int = 10

    one_family = False

    @abstractmethod
    def noise(self, trials: Trials, draw: Tensor) -> Tensor:
        """`[B, *S]` noise of any length."""

    def family(self, trials: Trials, draw: Tensor) -> Tensor:
        return levelled(self.noise(trials, draw).to(trials.x)) * _LONGEST

    def member(self, x: Tensor, family: Tensor, share: Tensor) -> Tensor:
        return (x + along(share, x).to(x) * family).clamp(0, 1)
