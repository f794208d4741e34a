"""The pictures of a trace: pixels, gradients, Grad-CAM overlays and channels.

Small images are drawn pixel by pixel and enlarged by the browser; overlays are drawn larger, because the heat map is
interpolated between the positions of the feature map.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.tracing import Album
from robustkit.tracing.album import AlbumEntry, Channel, GradCamPair

from ..shared.images import amplified, png
from ..shared.words import DASH, TIMES, printable

DRAWN: Final = 128  # smallest side of an overlay, in pixels
LARGEST: Final = 160  # largest side of a gradient, in pixels: noise compresses badly, and a page should fit into a mail
STRONGEST: Final = 0.99  # share of a gradient's values below the largest colour
HEAT: Final = 0.8  # opacity of the heat map where it is strongest

Array = NDArray[np.float64]


class Tile(NamedTuple):
    """One picture with its caption."""

    caption: str
    src: str  # data URI
    width: int
    height: int
    alt: str


class Strip(NamedTuple):
    """A row of pictures that belong together."""

    title: str
    note: str
    tiles: list[Tile]


class Channels(NamedTuple):
    """The channels of one call, three pictures each."""

    layer: str
    triples: list[Strip]


class Sheet(NamedTuple):
    """All pictures of one image."""

    number: int
    label: str
    prediction: str
    broken: bool
    margin: str
    pixels: Strip
    looks: list[Strip]
    layers: list[Channels]


def sheets(album: Album, class_names: Sequence[str]) -> list[Sheet]:
    """The pictures of an album; inputs that are not `[C, H, W]` have none."""
    return [_sheet(shot, album, class_names) for shot in album.entries if shot.x.ndim == 3]


def class_name(number: int, names: Sequence[str]) -> str:
    """The name of a class, or its number."""
    return printable(names[number]) if number < len(names) else str(number)


def _sheet(shot: AlbumEntry, album: Album, names: Sequence[str]) -> Sheet:
    where = f"image {shot.number}"
    return Sheet(
        number=shot.number,
        label=class_name(shot.label, names),
        prediction=class_name(shot.prediction, names),
        broken=shot.broken,
        margin=f"{shot.margin_change:+.3g}",
        pixels=_pixels(shot, where),
        looks=[_look(shot, look, names, where) for look in shot.grad_cams if shot.broken or look.aim == "true"],
        layers=[
            Channels(printable(layer.name), [_channel(one, layer.name, where) for one in layer.channels])
            for layer in shot.layers
        ],
    )


def _pixels(shot: AlbumEntry, where: str) -> Strip:
    clean, moved = shot.x.astype(np.float64), shot.x_adv.astype(np.float64)
    delta = moved - clean
    largest = float(np.abs(delta).max())
    factor = f"{TIMES} {1 / (2 * largest):.3g}" if largest else "no difference"
    grads = [_strongest(grad) for grad in (shot.clean_grad, shot.perturbed_grad)]
    return Strip("Pixels", "", [
        _tile("clean", clean, f"{where}, before the attack"),
        _tile("adversarial", moved, f"{where}, after the attack"),
        _tile(f"difference {factor}", amplified(delta), f"their difference, amplified {factor}"),
        _tile("gradient, clean", _signed(grads[0]), f"the margin's gradient in {where}, before the attack"),
        _tile("gradient, adversarial", _signed(grads[1]), "the same after the attack"),
    ])  # fmt: skip


def _look(shot: AlbumEntry, look: GradCamPair, names: Sequence[str], where: str) -> Strip:
    name = class_name(look.label, names)
    return Strip(
        f"Looking for {name}",
        f"{'the true class' if look.aim == 'true' else 'predicted after the attack'}; "
        f"rank correlation {number(look.correlation)}, overlap {number(look.overlap)}",
        [
            _overlay("clean", shot.x, look.clean, f"Grad-CAM for {name} on {where}, before the attack"),
            _overlay("adversarial", shot.x_adv, look.perturbed, f"Grad-CAM for {name} on {where}, after the attack"),
        ],
    )


def _channel(one: Channel, layer: str, where: str) -> Strip:
    low, high = float(min(one.clean.min(), one.perturbed.min())), float(max(one.clean.max(), one.perturbed.max()))
    span = high - low or 1.0
    about = f"channel {one.number} of {printable(layer)} for {where}"
    return Strip(f"channel {one.number}", "", [
        _tile("clean", (one.clean[None] - low) / span, f"{about}, before the attack"),
        _tile("adversarial", (one.perturbed[None] - low) / span, f"{about}, after the attack"),
        _tile("gradient", _signed(one.clean_grad[None]), f"the margin's gradient in {about}, before the attack"),
    ])  # fmt: skip


def number(value: float) -> str:
    """A coefficient with two decimals; a dash for NaN."""
    return DASH if np.isnan(value) else f"{value:.2f}"


def _strongest(grad: NDArray[np.float32]) -> Array:
    """`[1, H, W]`: at each pixel the channel with the largest gradient; large images are thinned out."""
    values = grad.astype(np.float64)
    one = np.take_along_axis(values, np.abs(values).argmax(0)[None], 0)
    step = -(-max(one.shape[1:]) // LARGEST)
    return one[:, ::step, ::step]


def _signed(values: NDArray[np.floating]) -> Array:
    """`[3, H, W]` colours: white for nothing, red above and blue below it."""
    from matplotlib import colormaps

    one = values[0].astype(np.float64)
    # Scaled by the maximum, a few pixels with a huge gradient would leave all others white.
    strong = float(np.quantile(np.abs(one), STRONGEST)) or float(np.abs(one).max())
    shade = 0.5 + np.clip(one / (2 * strong), -0.5, 0.5) if strong else np.full_like(one, 0.5)
    return np.moveaxis(np.asarray(colormaps["RdBu_r"](shade))[..., :3], -1, 0)


def _overlay(caption: str, image: NDArray[np.float32], heat: NDArray[np.float32], alt: str) -> Tile:
    from matplotlib import colormaps

    times = max(1, -(-DRAWN // max(image.shape[1:])))
    grey = np.kron(image.astype(np.float64).mean(0), np.ones((times, times)))
    strength = _resized(heat.astype(np.float64) / (float(heat.max()) or 1.0), grey.shape)
    colours = np.asarray(colormaps["inferno"](0.25 + 0.75 * strength))[..., :3]
    cover = (HEAT * strength)[..., None]
    return _tile(caption, np.moveaxis((1 - cover) * grey[..., None] + cover * colours, -1, 0), alt)


def _resized(values: Array, shape: tuple[int, ...]) -> Array:
    from PIL import Image

    drawn = Image.fromarray(values.astype(np.float32)).resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    return np.clip(np.asarray(drawn, dtype=np.float64), 0, 1)


def _tile(caption: str, image: NDArray[np.floating], alt: str) -> Tile:
    return Tile(caption, png(image.astype(np.float64)), image.shape[-1], image.shape[-2], alt)
