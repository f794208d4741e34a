"""SSA: MI-FGSM along the gradient averaged over copies of the image with a random spectrum.

Long et al. 2022, arXiv:2207.05382 (S2I-MI-FGSM): a copy is the image plus normal noise, each of whose cosine
coefficients (DCT) is multiplied by a random number from 1 - rho to 1 + rho. The authors' code uses the gradient at the
copy as if it were that at the image: `variant="reference"`. In L2, the noise is divided by the square root of the
number of values.
Bad at: small budgets; a step costs 20 queries.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from robustkit.errors import unknown
from robustkit.primitives import noise
from robustkit.primitives.ball import finer
from robustkit.primitives.protocol import Trials

from .._cosines import cosines
from .._schedules import beside
from ._copies import Copies, CopiesState
from ._images import as_images

VARIANTS = ("paper", "reference")


@dataclass(frozen=True)
class SSA(Copies):
    """Spectrum simulation attack.

    Args:
        copies: copies per step; N in the paper.
        sigma: standard deviation of the noise of each value, in units of eps; the authors take 16/255 at that radius.
        rho: largest difference of the coefficients' factors from 1.
        variant: "paper" takes gradients back through the transformation, "reference" leaves them as they are.
    """

    _: KW_ONLY
    copies: int = 20
    sigma: float = 1.0
    rho: float = 0.5
    variant: str = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "copies")
        self.at_least(0.0, "sigma", "rho")
        if self.variant not in VARIANTS:
            raise unknown("variant of SSA", str(self.variant), VARIANTS)

    @property
    def per_step(self) -> int:
        return self.copies

    def copied(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        if self.sigma == 0 and self.rho == 0:
            return source
        # Three streams: one of them is that of the diverse inputs.
        normal = noise.normal(finer(finer(trials.key)), number, source.shape[1:]).to(source)
        noisy = source + self.sigma * self.value_radius(source) * normal
        factor = 1 + self.rho * (2 * noise.uniform(trials.key, number, source.shape[1:]) - 1)
        spectrum = transform(as_images(noisy)) * as_images(factor).to(source)
        return transform(spectrum, inverse=True).reshape(source.shape)

    def taken_back(self, state: CopiesState, grad: Tensor) -> Tensor:
        return super().taken_back(state, grad) if self.variant == "paper" else grad


class CosineTransform(torch.autograd.Function):
    """`[B, C, H, W]` coefficients of each channel's cosines, or with `inverse` the images of such coefficients."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, inverse: bool) -> Tensor:
        ctx.inverse = inverse
        tall, wide = (beside(cosines(side), images) for side in images.shape[-2:])
        left, right = (tall.T, wide) if inverse else (tall, wide.T)
        # A product of all images, or one that begins at any address, may round differently in another batch size.
        return torch.stack([left @ image.clone() @ right for image in images])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        # The cosines are orthonormal, so the transpose is the inverse; both forms round as they do forwards.
        return CosineTransform.forward(ctx, grads[0], not ctx.inverse), None


def transform(images: Tensor, *, inverse: bool = False) -> Tensor:
    """`CosineTransform`, with types."""
    result: Tensor = CosineTransform.apply(images, inverse)
    return result
