"""The target classes of a race, with the best points that the searches towards them have found."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.primitives.rows import Rows


@dataclass(frozen=True)
class Rivals(Rows):
    """The classes that are in the race of each row."""

    classes: Tensor  # [B, C] int64
    clean_losses: Tensor  # [B, C] the loss towards each of them at the image
    losses: Tensor  # [B, C] and at the best point
    points: Tensor  # [B, C, *S] the best points

    def reached(self, rows: Tensor, place: Tensor, point: Tensor, loss: Tensor) -> Self:
        """With the best point `[B, *S]` of the search for the class at one place `[B]`; other `rows` are unchanged."""
        here = rows.unsqueeze(1) & (torch.arange(self.classes.shape[1], device=place.device) == place.unsqueeze(1))
        mask = here.reshape(*here.shape, *[1] * (point.dim() - 1))
        return replace(
            self,
            losses=torch.where(here, loss.unsqueeze(1), self.losses),
            points=torch.where(mask, point.unsqueeze(1), self.points),
        )

    def nearest_first(self) -> Self:
        """The same classes, that with the highest loss first."""
        order = self.losses.argsort(dim=1, descending=True, stable=True)
        rows = torch.arange(len(order), device=order.device).unsqueeze(1)
        return type(self)(*(values[rows, order] for values in vars(self).values()))

    def point(self, place: Tensor) -> Tensor:
        """`[B, *S]` the best points for the classes at one place `[B]` each."""
        return self.points[torch.arange(len(place), device=place.device), place]
