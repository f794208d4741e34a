"""Universal: one change that is added to every image, and breaks many of them.

Moosavi-Dezfooli et al. 2017, arXiv:1610.08401, add up the changes that DeepFool finds for one image after another.
This is the later form: projected steps along the gradient of mini-batches with a clipped loss, Shafahi et al. 2020,
arXiv:1811.11304, and Co et al. 2021, arXiv:1911.10364 (signs of gradients, falling step size).
Ours differs: the steps follow a decaying sum of gradients, and only correctly classified images are fitted to.
Bad at: any single image, which an attack on that image breaks at a much smaller radius.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import Ball, NormName
from robustkit.primitives.rounding import Bounds
from robustkit.primitives.threat import ball, is_minimum, norm_name

from ._momentum import SharedMomentumAttack, SharedMomentumState


@dataclass(frozen=True)
class Universal(SharedMomentumAttack):
    """One additive change for all images.

    Args:
        eps: radius, in units of pixels that lie in [0, 1]; a text such as "8/255" is exact.
        norm: "Linf" or "L2".
    """

    eps: float | str
    norm: str = "Linf"

    norms: ClassVar[tuple[NormName, ...]] = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ball.norm not in self.norms:
            raise UserError(f"Universal has no {self.ball.norm} form; it has {', '.join(self.norms)}.")
        if is_minimum(self.eps):
            raise UserError("Universal needs a radius in place of 'minimum'; add eps=, for example eps='8/255'.")

    @cached_property
    def ball(self) -> Ball:
        """The threat model."""
        return ball(norm_name(self.norm), self.eps)

    def init(self, shape: tuple[int, ...]) -> SharedMomentumState:
        return self.begun(torch.zeros(shape, dtype=torch.float32, device="cpu"))

    def apply(self, perturbations: Tensor, x: Tensor, key: Tensor) -> Tensor:
        return (x + perturbations).clamp(0, 1)

    def moved(self, perturbation: Tensor, direction: Tensor, length: float) -> Tensor:
        steepest = self.ball.steepest(direction.unsqueeze(0), perturbation.unsqueeze(0))[0]
        end = perturbation + length * self.ball.eps * steepest
        if self.ball.norm == "Linf":
            return end.clamp(-self.ball.eps, self.ball.eps)
        scale: Tensor = (self.ball.eps / end.norm().clamp(min=1e-12)).clamp(max=1)
        return end * scale

    def judged(self, perturbation: Tensor, x: Tensor, key: Tensor, original: Tensor, bounds: Bounds) -> Tensor:
        return self.ball.project_exact_around(original, bounds, x, x + perturbation)
