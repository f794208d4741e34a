"""Pictures of what a perturbation does inside a network: a few images, a few layers, the channels that change most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier

from .focus import Aim, Focus, NoFeatureMapError, focus
from .growth import towards_the_rival
from .leaves import followed
from .passes import INPUT_KEY, Key, Pass, Runner, same_calls, tiles
from .places import as_map, layout
from .points import Pairs
from .traced import Traced

RULE = (
    "The images with the largest change of the margin among those that were broken, "
    "then the same among those that stayed robust."
)
IMAGES, LAYERS, CHANNELS = 6, 4, 4
BROKEN_SHARE = 2 / 3  # what stayed robust is worth a look as well

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Channel:
    """One channel of one call: its activations before and after, and the margin's gradient in them."""

    number: int
    clean: Picture  # [h, w]
    moved: Picture
    clean_grad: Picture
    moved_grad: Picture


@dataclass(frozen=True)
class LayerPicture:
    """The channels of one call that the attack changed most in one image."""

    name: str
    channels: tuple[Channel, ...]


@dataclass(frozen=True)
class Look:
    """Grad-CAM maps for one class."""

    aim: Aim
    label: int
    clean: Picture  # [h, w]
    moved: Picture
    correlation: float
    overlap: float


@dataclass(frozen=True)
class AlbumEntry:
    """All pictures of one image."""

    number: int
    label: int
    prediction: int  # after the attack
    margin_change: float
    x: Picture  # [C, H, W] in [0, 1]
    x_adv: Picture
    clean_grad: Picture  # [C, H, W] of the margin in the pixels
    moved_grad: Picture
    looks: tuple[Look, ...]
    layers: tuple[LayerPicture, ...]

    @property
    def broken(self) -> bool:
        """Whether the attack succeeded."""
        return self.prediction != self.label


@dataclass(frozen=True)
class Album:
    """Pictures of some images of a trace."""

    shots: tuple[AlbumEntry, ...]
    focus: Focus | None
    rule: str = RULE


def album(
    model: nn.Module | Classifier,
    traced: Traced,
    *,
    layers: Sequence[str] | None = None,
    images: int = IMAGES,
    channels: int = CHANNELS,
) -> Album:
    """Pictures of some images of a trace.

    Args:
        model: the one that was traced.
        traced: the images.
        layers: names or globs of the layers to show, the last of them for Grad-CAM, too; None takes some at even
            steps of depth. Layers without feature maps are left out.
        images: how many to show.
        channels: how many to show of each layer, for each image.
    """
    classifier = model if isinstance(model, Classifier) else Classifier(model, bounds=traced.bounds)
    pairs = traced.pairs.take(_chosen(traced, images))
    with classifier.session(classifier.input.moved(pairs.x), traced.seed):
        runner = Runner(classifier, traced.seed)
        found = followed(runner, pairs, layers)
        mapped = [key for key, shape in found.shapes.items() if layout(shape, pairs.x.shape[1:])]
        keys = mapped if layers is not None else _evenly(mapped)
        passes = _passes(runner, keys, found.tile, pairs)
    looks = _focus(classifier, traced, mapped[-1].layer if layers is not None and mapped else None)
    seen = [_Seen(row, *both) for both in passes for row in range(len(both[0].logits))]
    # The last tile has idle rows at its end.
    shots = [
        one.shot(traced, place, looks, keys, channels)
        for place, one in zip(_chosen(traced, images).tolist(), seen, strict=False)
    ]
    return Album(tuple(shots), looks)


def _focus(classifier: Classifier, traced: Traced, layer: str | None) -> Focus | None:
    try:
        return focus(classifier, traced, layer=layer)
    except NoFeatureMapError:
        return None


class _Seen(NamedTuple):
    """One image in the passes of its tile."""

    row: int
    clean: Pass
    moved: Pass

    def shot(self, traced: Traced, place: int, looks: Focus | None, keys: Sequence[Key], channels: int) -> AlbumEntry:
        """All pictures, of the image at that place of the trace."""
        pairs = traced.pairs
        clean_grad, moved_grad = (_array(grad) for grad in self.grads(INPUT_KEY))
        return AlbumEntry(
            number=int(pairs.number[place]), label=int(pairs.y[place]), prediction=int(pairs.prediction[place]),
            margin_change=float(traced.margin_change[place]),
            x=_array(pairs.x[place]), x_adv=_array(pairs.x_adv[place]),
            clean_grad=clean_grad, moved_grad=moved_grad, looks=() if looks is None else tuple(_looks(looks, place)),
            layers=tuple(self.layer(key, channels) for key in keys),
        )  # fmt: skip

    def grads(self, key: Key) -> tuple[Tensor, Tensor]:
        """The margin's gradients in the output, zero where the graph is cut behind it."""
        both = (side.calls[key] for side in (self.clean, self.moved))
        clean, moved = (torch.zeros_like(one.output) if one.grad is None else one.grad for one in both)
        return clean[self.row], moved[self.row]

    def layer(self, key: Key, most: int) -> LayerPicture:
        """The channels that changed most, in the order of their change."""
        image = self.clean.calls[INPUT_KEY].output.shape[1:]
        outputs = [side.calls[key].output[self.row] for side in (self.clean, self.moved)]
        before, after, *grads = (as_map(values[None], image)[0] for values in (*outputs, *self.grads(key)))
        order = (after - before).flatten(1).double().norm(dim=1).sort(descending=True, stable=True).indices
        shown = tuple(
            Channel(number, *(_array(values[number]) for values in (before, after, *grads)))
            for number in order[:most].tolist()
        )
        return LayerPicture(key.name, shown)


def _passes(runner: Runner, keys: Sequence[Key], size: int, pairs: Pairs) -> list[tuple[Pass, Pass]]:
    found = []
    for tile, _ in tiles(pairs, size):
        score = towards_the_rival(tile)
        clean, moved = (runner.run([key.layer for key in keys], points, score) for points in (tile.x, tile.x_adv))
        same_calls(clean, moved)
        found.append((clean, moved))
    return found


def _chosen(traced: Traced, most: int) -> Tensor:
    """Places in the trace: first broken images, then robust ones, each by the change of their margin."""
    order = traced.margin_change.sort(descending=True, stable=True).indices
    broken, robust = order[traced.pairs.broken[order]], order[~traced.pairs.broken[order]]
    share = max(most - len(robust), round(most * BROKEN_SHARE))
    first = broken[:share]
    return torch.cat([first, robust[: most - len(first)]])


def _evenly(keys: Sequence[Key]) -> list[Key]:
    places = np.unique(np.linspace(0, len(keys) - 1, min(LAYERS, len(keys))).round().astype(int))
    return [keys[place] for place in places] if keys else []


def _looks(looks: Focus, place: int) -> Iterator[Look]:
    for aim, maps in looks.aims.items():
        yield Look(
            aim, int(maps.label[place]), _array(maps.clean[place]), _array(maps.moved[place]),
            float(maps.correlation[place]), float(maps.overlap[place]),
        )  # fmt: skip


def _array(values: Tensor) -> Picture:
    return values.detach().float().cpu().numpy()
