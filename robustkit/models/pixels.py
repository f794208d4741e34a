"""A classifier of pixels: resizing and normalisation happen inside its forward pass.

So eps is always in units of pixels, and an attack cannot forget the normalisation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.models.preprocessing import Normalisation, Preprocessed, check_statistics


class PixelModel(Preprocessed):
    """A network that takes `[B, C, H, W]` pixels in [0, 1] and returns logits `[B, K]`.

    `torch.fx` can trace it if it can trace the network.

    Args:
        network: Takes images as they were in its training.
        name: What reports call it.
        source: One phrase that says where its weights come from.
        num_classes: Length of the logits.
        size: Resize (bilinear, no antialiasing) to this square first; None leaves the size.
        gray: Repeat the single channel three times.
        normalisation: Of each channel, next; None leaves the values.
        fit: Resizes and crops before all else, as the network's own image processor does; in place of `size`.

    Raises:
        UserError: mean and std have different lengths, or cannot be meant for pixels in [0, 1].
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        name: str,
        source: str,
        num_classes: int,
        size: int | None = None,
        gray: bool = False,
        normalisation: Normalisation | None = None,
        fit: nn.Module | None = None,
    ) -> None:
        super().__init__()
        # None is a plain attribute and no entry of the module's repr, which is part of its fingerprint.
        self.fit = fit
        self.network = network
        self.name, self.source, self.num_classes = name, source, num_classes
        self.size, self.gray = size, gray
        self.code = ""  # SHA-256 of the user's file that builds it
        self.normalises = normalisation is not None
        if normalisation is not None:
            check_statistics(*normalisation)
            # Constants, not weights: the state dict has the network's entries only.
            self.register_buffer(
                "mean", torch.tensor(normalisation.mean, device="cpu").view(-1, 1, 1), persistent=False
            )
            self.register_buffer("std", torch.tensor(normalisation.std, device="cpu").view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pixels."""
        if self.fit is not None:
            x = self.fit(x)
        if self.size is not None:
            x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        if self.gray:
            x = x.expand(-1, 3, -1, -1)
        if self.normalises:
            x = (x - self.mean) / self.std
        logits: Tensor = self.network(x)
        return logits
