"""What additive noise of any distribution shares: one direction after the other, each as long as the ball allows."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives.ball import levelled
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._walk import Walk

_LONGEST = 16.0  # times the range of pixels: what the box does not cut off by then is a small part of the noise


@dataclass(frozen=True)
class NoiseWalk(Walk):
    """Base of the attacks that add noise to an image and cut it to the box.

    Args:
        queries: forward passes per trial, at least 2; foolbox calls them repeats.
        steps: lengths of each noise that are queried, the longest one last.
        halvings: how often the way to an error is halved.
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
