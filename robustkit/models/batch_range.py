"""Networks that take batches of some sizes only: larger batches are run in parts, and smaller ones filled up."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError


class BatchRange(NamedTuple):
    """The sizes of batches that a network takes; `most` is None for any number."""

    least: int
    most: int | None

    @property
    def free(self) -> bool:
        """Whether every batch is taken as it is."""
        return self.least <= 1 and self.most is None

    def __str__(self) -> str:
        if self.most is None:
            return f"{self.least} or more"
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"


class BatchesInRange(nn.Module):
    """A network that is called with batches in a range, whatever the size of those that it is given."""

    def __init__(self, network: nn.Module, batches: BatchRange) -> None:
        super().__init__()
        self.network = network
        self.least, self.most = batches

    def forward(self, x: Tensor) -> Tensor:
        """The logits of all images."""
        return torch.cat([self._part(each) for each in torch.split(x, self.most or max(1, len(x)))])

    def _part(self, x: Tensor) -> Tensor:
        # Black images: their logits are cut off, so no gradient reaches them.
        missing = self.least - len(x)
        filled = x if missing <= 0 else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
        logits: object = self.network(filled)
        if not isinstance(logits, Tensor):
            raise UserError(f"A network for batches of one size must return logits alone, not {type(logits).__name__}.")
        return logits[: len(x)]


def in_range(network: nn.Module, batches: BatchRange) -> nn.Module:
    """The network itself if it takes every batch, else with its batches cut and filled up."""
    if batches.least < 1 or (batches.most is not None and batches.most < batches.least):
        raise UserError(f"A network cannot take batches of {batches} images; export it again.")
    return network if batches.free else BatchesInRange(network, batches)
