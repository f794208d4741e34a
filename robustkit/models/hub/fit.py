"""Resizing and cropping as a network's own image processor does it, inside the model and differentiable.

Ours differs from the processor in two ways. The resized picture is not rounded to 8 bits, because rounding has no
gradient. Images that already have the size of the network are left as they are: data sets are resized and cropped when
they are read, and a second crop would cut their borders off.
"""

from typing import NamedTuple

from torch import Tensor, nn

from robustkit.errors import UserError

_MODES = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class Side(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int


class ImageFit(nn.Module):
    """Resize, then crop the centre, then put the channels in the network's order.

    Args:
        size: Images are resized to it, whatever their proportions; None keeps these.
        short: With None as `size`: the short side is resized to it; None does not resize.
        crop: The centre is cut to it, with black borders where the image is smaller; None does not crop.
        resample: Pillow's number of the interpolation.
        flip: Whether the network takes the channels in the order blue, green, red.
    """

    def __init__(self, size: Side | None, short: int | None, crop: Side | None, resample: int, flip: bool) -> None:
        super().__init__()
        self.size, self.short, self.crop = size, short, crop
        self.resample, self.flip = resample, flip

    @property
    def fitting(self) -> Side | None:
        """The size that is left as it is; None if there is none."""
        return self.crop or self.size or (None if self.short is None else Side(self.short, self.short))

    def forward(self, x: Tensor) -> Tensor:
        """Images `[B, C, H, W]` in the size that the network takes."""
        return self._ordered(x) if tuple(x.shape[2:]) == self.fitting else self.processed(x)

    def processed(self, x: Tensor) -> Tensor:
        """What the image processor makes of images, also of those that have the right size."""
        from torchvision.transforms.v2 import functional as images

        to = self._resized(Side(*x.shape[2:]))
        if to is not None and self.resample not in _MODES:
            raise UserError(
                f"The image processor resizes with Pillow's method {self.resample}, which has no gradient here; load "
                "the model in a function of yours: --model FILE.py:FUNCTION."
            )
        if to is not None:
            mode = images.InterpolationMode(_MODES[self.resample])
            x = images.resize(x, list(to), interpolation=mode, antialias=True)
        return self._ordered(x if self.crop is None else _cropped(x, self.crop))

    def extra_repr(self) -> str:
        """All settings: what is read in the evidence."""
        return f"size={self.size}, short={self.short}, crop={self.crop}, resample={self.resample}, flip={self.flip}"

    def _resized(self, given: Side) -> Side | None:
        if self.size is not None or self.short is None:
            return self.size
        long = int(self.short * max(given) / min(given))
        return Side(long, self.short) if given.height > given.width else Side(self.short, long)

    def _ordered(self, x: Tensor) -> Tensor:
        return x.flip(1) if self.flip else x


def _cropped(x: Tensor, to: Side) -> Tensor:
    height, width = x.shape[2:]
    missing = max(to.height - height, 0), max(to.width - width, 0)
    if any(missing):
        top, left = missing[0] // 2, missing[1] // 2
        x = nn.functional.pad(x, (left, missing[1] - left, top, missing[0] - top))
        height, width = x.shape[2:]
    top, left = (height - to.height) // 2, (width - to.width) // 2
    return x[:, :, top : top + to.height, left : left + to.width]
