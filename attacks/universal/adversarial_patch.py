"""Adversarial patch: one patch that replaces a part of every image, at random places, sizes and rotations.

Brown et al. 2017, arXiv:1712.09665: gradient steps on the expectation over places, rotations and sizes.
Ours differs: steps follow the signs of a decaying sum of gradients; a patch always lies completely inside the image.
Bad at: classes whose features are spread over the image, and images much larger than the patch.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.primitives import noise

from ._momentum import SharedMomentumAttack, SharedMomentumState


@dataclass(frozen=True)
class AdversarialPatch(SharedMomentumAttack):
    """One patch for all images.

    Args:
        draws: random places per image and step.
        size: side of the patch, as a share of the image's shorter side; at random places the largest side.
        smallest: the smallest side at random places, as such a share; None is half of `size`.
        rotation: largest angle of a rotation, in degrees to either side.
        row, column: pixel of the image at the patch's upper left corner; it then stays there, unrotated, at its size.
            None places it at random.
        shape: "circle" or "square".
    """

    _: KW_ONLY
    draws: int = 4
    size: float = 0.4
    smallest: float | None = None
    rotation: float = 22.5
    row: int | None = None
    column: int | None = None
    shape: Literal["circle", "square"] = "circle"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("size")
        self.at_least(0.0, "rotation")
        self.at_least_or_none(0.0, "smallest")
        self.at_least_or_none(0, "row")
        self.at_least_or_none(0, "column")
        if self.size == 0 or (self.smallest is not None and not 0 < self.smallest <= self.size):
            raise UserError(
                f"AdversarialPatch: shares must satisfy 0 < smallest <= size, not {self.smallest} and {self.size}."
            )
        if (self.row is None) != (self.column is None):
            raise UserError("AdversarialPatch: row and column belong together; give both, or neither.")
        if self.shape not in ("circle", "square"):
            raise UserError(f"AdversarialPatch: shape must be circle or square, not {self.shape!r}.")

    @property
    def placed(self) -> bool:
        return self.row is None

    def init(self, shape: tuple[int, ...]) -> SharedMomentumState:
        if len(shape) != 3:
            raise UserError(f"A patch needs images [channels, height, width], not {list(shape)}.")
        channels, height, width = shape
        side = max(1, round(self.size * min(height, width)))
        if (self.row or 0) + side > height or (self.column or 0) + side > width:
            raise UserError(
                f"A patch of {side} x {side} pixels does not fit at row {self.row}, column {self.column} of "
                f"{height} x {width} pixels; choose a smaller size=, row= or column=."
            )
        return self.begun(torch.full((channels, side, side), 0.5, dtype=torch.float32, device="cpu"))

    def apply(self, perturbations: Tensor, x: Tensor, key: Tensor) -> Tensor:
        if self.row is not None and self.column is not None:
            return self._pasted(perturbations, x, self.row, self.column)
        grid = torch.stack([self._grid(place, x) for place in self._places(key, x)])
        inside = self._inside(grid).unsqueeze(1)
        sampled = F.grid_sample(perturbations, grid, mode="bilinear", padding_mode="border", align_corners=False)
        return torch.where(inside, sampled.clamp(0, 1), x)

    def moved(self, perturbation: Tensor, direction: Tensor, length: float) -> Tensor:
        return (perturbation + length * direction.sign()).clamp(0, 1)

    def _pasted(self, patches: Tensor, x: Tensor, row: int, column: int) -> Tensor:
        side = patches.shape[-1]
        rest = (column, x.shape[-1] - column - side, row, x.shape[-2] - row - side)
        steps = (torch.arange(side, dtype=x.dtype, device=x.device) * 2 + 1) / side - 1
        inside = self._inside(torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1))
        return torch.where(F.pad(inside, rest), F.pad(patches, rest), x)

    def _inside(self, grid: Tensor) -> Tensor:
        """Whether points `[..., 2]` of the patch's own square, from -1 to 1, are part of it."""
        across, down = grid.unbind(-1)
        if self.shape == "circle":
            return across.square() + down.square() <= 1
        return (across.abs() <= 1) & (down.abs() <= 1)

    def _places(self, key: Tensor, x: Tensor) -> "list[_Place]":
        """One place for each row, wholly inside the image."""
        height, width = x.shape[-2:]
        smallest = self.size / 2 if self.smallest is None else self.smallest
        places = []
        # One row at a time: torch's vectors and scalars round sines differently.
        for angle, scale, right, down in noise.uniform(key, 0, (4,)).double().tolist():
            turn = math.radians(self.rotation) * (2 * angle - 1)
            half = (smallest + (self.size - smallest) * scale) * min(height, width) / 2
            reach = half if self.shape == "circle" else half * (abs(math.cos(turn)) + abs(math.sin(turn)))
            places.append(_Place(_within(down, reach, height), _within(right, reach, width), half, turn))
        return places

    def _grid(self, place: "_Place", x: Tensor) -> Tensor:
        """`[H, W, 2]` each pixel's point in the patch's own square."""
        height, width = x.shape[-2:]
        down = torch.arange(height, dtype=torch.float64, device=x.device).add(0.5 - place.row).unsqueeze(1)
        right = torch.arange(width, dtype=torch.float64, device=x.device).add(0.5 - place.column)
        cos, sin = math.cos(place.turn) / place.half, math.sin(place.turn) / place.half
        return torch.stack([cos * right + sin * down, cos * down - sin * right], -1).to(x.dtype)


class _Place(NamedTuple):
    row: float  # of the centre, in pixels
    column: float
    half: float  # side, halved
    turn: float  # angle


def _within(share: float, reach: float, length: int) -> float:
    """A centre between `reach` and `length - reach`; the middle where there is no room."""
    return length / 2 if 2 * reach >= length else reach + share * (length - 2 * reach)
