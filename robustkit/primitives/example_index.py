"""Adversarial examples found by their clean images: the nearest one counts, if no value differs by more than a level.

So an image is found again that was stored as 8 bits or in half precision, but not one that was resized. Candidates are
those whose projections on some random directions are near; each of these is compared in full.
"""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from robustkit.errors import UserError

MOST = 10_000  # examples of one image
_LEVEL = 1 / 255 + 1e-6  # the largest difference of two values of one image
_DIRECTIONS = 8
_SEED = 0x45584D50
_WIDTH = 8 * _LEVEL  # of rounding errors in a projection, in units of the root of the number of values
_ROUNDING = 1e-2
_AT_ONCE = 64


class ExampleIndex:
    """Examples, grouped by their clean image.

    Args:
        x: `[n, *S]` float32 clean images in [0, 1], on the CPU; one may be there several times.
        x_adv: `[n, *S]` their examples.

    Attributes:
        most: the largest number of different examples of one image.

    Raises:
        UserError: an image has too many examples.
    """

    def __init__(self, x: Tensor, x_adv: Tensor) -> None:
        groups: dict[bytes, dict[bytes, int]] = {}
        for row, (clean, example) in enumerate(zip(digests(x), digests(x_adv), strict=True)):
            groups.setdefault(clean, {}).setdefault(example, row)
        self._rows = [list(rows.values()) for rows in groups.values()]
        self.most = max(map(len, self._rows))
        if self.most > MOST:
            raise UserError(f"An image has {self.most:,} examples; give at most {MOST:,} of each.")
        first = torch.tensor([rows[0] for rows in self._rows], device="cpu")
        self._clean, self._x_adv = x.flatten(1)[first], x_adv.flatten(1)
        generator = torch.Generator().manual_seed(_SEED)
        signs = torch.randint(2, (self._clean.shape[1], _DIRECTIONS), generator=generator, device="cpu")
        self._directions = 2.0 * signs - 1
        self._projected = torch.cat([part @ self._directions for part in torch.split(self._clean, _AT_ONCE)])

    def numbers(self, images: Tensor) -> Tensor:
        """`[B, most]` int64 the numbers of the examples of images `[B, *S]`, filled up with -1."""
        found = [self._rows[group] if group is not None else [] for group in self._groups(images)]
        return torch.tensor([rows + [-1] * (self.most - len(rows)) for rows in found], device="cpu")

    def known(self, images: Tensor) -> int:
        """How many of some images `[B, *S]` have an example."""
        return sum(group is not None for group in self._groups(images))

    def examples(self, numbers: Tensor, images: Tensor) -> Tensor:
        """`[B, *S]` the examples with these numbers `[B]`; images themselves where the number is -1."""
        own = self._x_adv[numbers.clamp(min=0).cpu()].reshape(images.shape).to(images)
        return torch.where((numbers >= 0).reshape(-1, *[1] * (images.dim() - 1)), own, images)

    def _groups(self, images: Tensor) -> Iterator[int | None]:
        flat = images.cpu().float().flatten(1)
        if flat.shape[1] != self._clean.shape[1]:
            yield from [None] * len(flat)
            return
        width = _WIDTH * flat.shape[1] ** 0.5 + _ROUNDING
        for image, projected in zip(flat, flat @ self._directions, strict=True):
            near = ((self._projected - projected).abs() <= width).all(1).nonzero().flatten()
            yield self._nearest(image, near)

    def _nearest(self, image: Tensor, candidates: Tensor) -> int | None:
        if not len(candidates):
            return None
        parts = torch.split(candidates, _AT_ONCE)
        apart = torch.cat([(self._clean[part] - image).abs().amax(1) for part in parts])
        nearest = int(apart.argmin())
        return int(candidates[nearest]) if float(apart[nearest]) <= _LEVEL else None


def digests(images: Tensor) -> Sequence[bytes]:
    """What tells the values of images apart, bit for bit."""
    return [hashlib.sha256(each.tobytes()).digest() for each in images.contiguous().numpy()]
