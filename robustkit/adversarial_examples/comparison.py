"""A picture of clean image, adversarial example and difference, side by side."""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.host.text import printable

from .eight_bits import WHITE, Levels

_TIMES = "\u00d7"
_INCHES, _DOTS = 2.6, 150  # of one panel
_MARGIN, _TEXT = 0.06, 0.46  # inches around a panel, and for two lines of text above it
_LETTERS = 34  # of a class name above a panel


class Titles(NamedTuple):
    """What stands above the three panels."""

    clean: str
    adversarial: str
    distance: str


def write_comparison(clean: Levels, adversarial: Levels, titles: Titles, path: Path) -> None:
    """Write a PNG with three panels; the third is the difference, scaled so that the largest is black or white."""
    # Not pyplot: it keeps figures alive and picks a window system.
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    change = adversarial - clean
    largest = max(1, int(np.abs(change).max()))
    factor = WHITE / 2 / largest
    panels = (
        ("clean", titles.clean, clean / WHITE),
        ("adversarial", titles.adversarial, adversarial / WHITE),
        (f"difference, {_TIMES} {factor:.3g}", titles.distance, 0.5 + change / (2 * largest)),
    )
    height, width = clean.shape[1:]
    wide, high = 3 * _INCHES, _INCHES * min(2.0, max(0.5, height / width)) + _TEXT
    with warnings.catch_warnings(), matplotlib.style.context(["default", {"font.family": "DejaVu Sans"}]):
        warnings.simplefilter("ignore")  # letters that the font lacks are drawn as boxes
        canvas = Canvas(figsize=(wide, high))
        size = (_INCHES - 2 * _MARGIN) / wide, (high - _TEXT - 2 * _MARGIN) / high
        for number, (kind, text, pixels) in enumerate(panels):
            # Placed by hand: to find a layout takes matplotlib longer than all of the drawing.
            corner = (number * _INCHES + _MARGIN) / wide, _MARGIN / high
            axes = canvas.add_axes((*corner, *size), anchor="N", frameon=False)
            axes.set_axis_off()
            axes.imshow(_shown(pixels), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            middle, top = (number + 0.5) * _INCHES / wide, 1 - _TEXT / high
            canvas.text(middle, top, f"{kind}\n{_short(text)}", fontsize=9, parse_math=False, ha="center", va="bottom")
        canvas.savefig(path, format="png", dpi=_DOTS, metadata={"Software": None})


def _shown(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)


def _short(text: str) -> str:
    words = printable(text)
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"
