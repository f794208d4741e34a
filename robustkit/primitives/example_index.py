"""Adversarial examples found by their clean images, of which no value differs by more than a level; the nearest first.

So an image is found again that was stored as 8 bits or in half precision, but not one that was resized. Candidates are
those whose projections on some random directions are near; each of these is compared in full.
"""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

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
    """

    def __init__(self, x: Tensor, x_adv: Tensor) -> None:
        groups: dict[bytes, dict[bytes, int]] = {}
        for row, (clean, example) in enumerate(zip(digests(x), digests(x_adv), strict=True)):
            groups.setdefault(clean, {}).setdefault(example, row)
        self._rows = [list(rows.values()) for rows in groups.values()]
        self._first = torch.tensor([rows[0] for rows in self._rows], device="cpu")
        self._x, self._x_adv = x.flatten(1), x_adv.flatten(1)
        generator = torch.Generator().manual_seed(_SEED)
        signs = torch.randint(2, (self._x.shape[1], _DIRECTIONS), generator=generator, device="cpu")
        self._directions = signs.to(torch.float32) * 2 - 1
        parts = torch.split(self._first, _AT_ONCE)
        self._projected = torch.cat([self._x[part] @ self._directions for part in parts])

    def numbers(self, images: Tensor) -> list[list[int]]:
        """The numbers of the examples of each of some images `[B, *S]`."""
        return [[row for group in groups for row in self._rows[group]] for groups in self._groups(images)]

    def examples(self, numbers: Tensor, images: Tensor) -> Tensor:
        """`[B, *S]` the examples with these numbers `[B]`; images themselves where the number is -1."""
        own = self._x_adv[numbers.clamp(min=0).cpu()].reshape(images.shape).to(images)
        return torch.where((numbers >= 0).reshape(-1, *[1] * (images.dim() - 1)), own, images)

    def _groups(self, images: Tensor) -> Iterator[list[int]]:
        flat = images.cpu().float().flatten(1)
        if flat.shape[1] != self._x.shape[1]:
            yield from [[]] * len(flat)
            return
        width = _WIDTH * flat.shape[1] ** 0.5 + _ROUNDING
        for image, projected in zip(flat, flat @ self._directions, strict=True):
            near = ((self._projected - projected).abs() <= width).all(1).nonzero().flatten()
            yield self._equal(image, near)

    def _equal(self, image: Tensor, candidates: Tensor) -> list[int]:
        """Those of some groups whose clean image is this one up to a level, the nearest first."""
        if not len(candidates):
            return []
        parts = torch.split(candidates, _AT_ONCE)
        apart = torch.cat([(self._x[self._first[part]] - image).abs().amax(1) for part in parts])
        order = apart.argsort(stable=True)
        return candidates[order[apart[order] <= _LEVEL]].tolist()


def digests(images: Tensor) -> Sequence[bytes]:
    """What tells the values of images apart, bit for bit."""
    return [hashlib.sha256(each.tobytes()).digest() for each in images.contiguous().numpy()]
