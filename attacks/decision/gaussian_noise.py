"""Gaussian noise of a given length, many times.

As in foolbox's repeated and clipping-aware additive noise (Rauber & Bethge 2020, arXiv:2007.07677): after clipping to
[0, 1], the perturbation is as long as the radius. Ours differs: it also looks for the nearest error.
Bad at: inputs of many dimensions, like all noise; it is a baseline.
"""

from dataclasses import dataclass

from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials

from ._noise_walk import NoiseWalk


@dataclass(frozen=True)
class GaussianNoise(NoiseWalk):
    """Normally distributed noise."""

    norms = ("L2",)

    def noise(self, trials: Trials, draw: Tensor) -> Tensor:
        return noise.normal(trials.key, draw, trials.x.shape[1:])
