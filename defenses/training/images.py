"""The images of a training in batches, in an order that is a function of (seed, epoch) alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from robustkit.data import Dataset

from ..inner_attack.crafting import noise_keys
from .batches import Batch
from .recipe import Recipe

SEEDS_APART = 1_000_003  # between the random streams of two seeds


class TrainingImages:
    """Training images in batches.

    Args:
        data: all of them.
        recipe: batch size, batches per step, seed.
        device: of the batches.
    """

    def __init__(self, data: Dataset, recipe: Recipe, device: torch.device) -> None:
        self.data, self.recipe, self.device = data, recipe, device

    @property
    def groups(self) -> int:
        """How many groups an epoch has."""
        return len(self.grouped(0))

    def grouped(self, epoch: int) -> list[list[Sequence[int]]]:
        """The batches of an epoch as lists of image numbers, in groups of one optimizer step each."""
        parts, count = self.parted(self.order(epoch)), self.recipe.accumulate
        return [parts[start : start + count] for start in range(0, len(parts), count)]

    def parted(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Image numbers in batches; a last batch of one image is left out, since BatchNorm needs two."""
        size = self.recipe.batch
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        return parts if len(parts[-1]) > 1 or size == 1 or len(parts) == 1 else parts[:-1]

    def order(self, epoch: int) -> list[int]:
        """All images, shuffled."""
        generator = torch.Generator().manual_seed(self.recipe.seed * SEEDS_APART + epoch)
        numbers: list[int] = torch.randperm(len(self.data), generator=generator, device="cpu").tolist()
        return numbers

    def batch(self, epoch: int, ids: Sequence[int]) -> Batch:
        """These images with their noise streams of an epoch."""
        x, y = on_device(self.data, ids, self.device)
        return Batch(x, y, noise_keys(self.recipe.seed, epoch, torch.tensor(list(ids), device=self.device)))


def on_device(data: Dataset, ids: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Images and labels on a device."""
    x, y = data.batch(list(ids))
    return x.to(device), y.to(device)
