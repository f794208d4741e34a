"""What a model is given: images in [0, 1], turned into its own range, device and floating point type."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import Self

from robustkit.models.preprocessing import Normalised, placement


@dataclass(frozen=True)
class InputFormat:
    """Range, device and type of a model's input."""

    bounds: tuple[float, float]
    device: torch.device
    dtype: torch.dtype  # of the weights
    casts: bool  # whether points must have the weights' type; a `Normalised` model casts them itself

    @classmethod
    def of(cls, model: nn.Module, bounds: tuple[float, float]) -> Self:
        """The format of a model as it is now."""
        return cls(bounds, *placement(model), not isinstance(model, Normalised))

    @property
    def unit_range(self) -> bool:
        """Whether the model takes pixels in [0, 1]."""
        return self.bounds == (0, 1)

    def place(self, images: Tensor) -> Tensor:
        """Images of the caller's range, moved to the model's device and scaled to [0, 1]."""
        low, high = self.bounds
        images = self.moved(images)
        return images if self.unit_range else ((images - low) / (high - low)).clamp(0, 1)

    def moved(self, points: Tensor) -> Tensor:
        """Points in [0, 1] on the model's device."""
        # Never coarser than fp32, whatever the weights are: a rounded point would leave the ball.
        dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        return points.to(self.device, dtype, non_blocking=self.device.type == "cuda" and points.is_pinned())

    def fed(self, points: Tensor, layout: torch.memory_format = torch.preserve_format) -> Tensor:
        """What the model itself is given for points in [0, 1]: a copy in its own range and type."""
        low, high = self.bounds
        # A copy: models may write into their input, and the point must not change under the attack.
        points = points.clone(memory_format=layout) if self.unit_range else low + (high - low) * points
        points = points.to(memory_format=layout)
        return points.to(self.dtype) if self.casts else points
