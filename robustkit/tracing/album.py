"""Pictures of a perturbation inside a network: for a few images and layers, the channels that change most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.host.arguments import checked_arguments

from .focus import Aim, Focus, NoFeatureMapError, focus
from .followed import followed
from .passes import INPUT_KEY, Key, Pass, Runner, check_same_calls, tiles
from .places import as_map, layout
from .points import Pairs
from .propagation import rival_margin
from .traced import Traced

RULE = (
    "The images with the largest change of the margin among those that were broken, "
    "then the same among those that stayed robust."
)
IMAGES, LAYERS, CHANNELS = 6, 4, 4
BROKEN_SHARE = 2 / 3  # of the pictures; the others show robust images

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Channel:
    """One channel of one call before and after the attack, with the margin's gradient with respect to it."""

    number: int
    clean: Picture  # [h, w]
    perturbed: Picture
    clean_grad: Picture
    perturbed_grad: Picture


@dataclass(frozen=True)
class LayerPicture:
    """The channels of one call that the attack changed most in one image."""

    name: str
    channels: tuple[Channel, ...]


@dataclass(frozen=True)
class GradCamPair:
    """Grad-CAM maps for one class."""

    aim: Aim
    label: int
    clean: Picture  # [h, w]
    perturbed: Picture
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
    perturbed_grad: Picture
    grad_cams: tuple[GradCamPair, ...]
    layers: tuple[LayerPicture, ...]

    @property
    def broken(self) -> bool:
        """Whether the attack succeeded."""
        return self.prediction != self.label


@dataclass(frozen=True)
class Album:
    """Pictures of some images of a trace."""

    entries: tuple[AlbumEntry, ...]
    focus: Focus | None
    rule: str = RULE


@checked_arguments
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
        model: the model that was traced.
        traced: its trace.
        layers: names or globs of the layers to show; the last one is also used for Grad-CAM. None takes some at even
            steps of depth. Layers without feature maps are left out.
        images: number of images to show.
        channels: number of channels to show for each layer and image.
    """
    classifier = as_classifier(model, traced.bounds)
    pairs = traced.pairs.take(_chosen(traced, images))
    with classifier.session(classifier.input_format().moved(pairs.x), traced.seed):
        runner = Runner(classifier, traced.seed)
        calls = followed(runner, pairs, layers)
        feature_maps = [key for key, shape in calls.shapes.items() if layout(shape, pairs.x.shape[1:])]
        keys = feature_maps if layers is not None else _at_even_steps(feature_maps)
        passes = _passes(runner, keys, calls.tile, pairs)
    grad_cam = _focus(classifier, traced, feature_maps[-1].layer if layers is not None and feature_maps else None)
    by_image = [_ImagePasses(row, *both) for both in passes for row in range(len(both[0].logits))]
    # Not strict: the last tile has padding rows at its end.
    entries = [
        one.entry(traced, index, grad_cam, keys, channels)
        for index, one in zip(_chosen(traced, images).tolist(), by_image, strict=False)
    ]
    return Album(tuple(entries), grad_cam)


def _focus(classifier: Classifier, traced: Traced, layer: str | None) -> Focus | None:
    try:
        return focus(classifier, traced, layer=layer)
    except NoFeatureMapError:
        return None


class _ImagePasses(NamedTuple):
    """One image in the clean and in the perturbed pass of its tile."""

    row: int
    clean: Pass
    perturbed: Pass

    def entry(
        self, traced: Traced, index: int, grad_cam: Focus | None, keys: Sequence[Key], channels: int
    ) -> AlbumEntry:
        """All pictures of the image with that index in the trace."""
        pairs = traced.pairs
        clean_grad, perturbed_grad = (_array(grad) for grad in self.grads(INPUT_KEY))
        return AlbumEntry(
            number=int(pairs.number[index]), label=int(pairs.y[index]), prediction=int(pairs.prediction[index]),
            margin_change=float(traced.margin_change[index]),
            x=_array(pairs.x[index]), x_adv=_array(pairs.x_adv[index]),
            clean_grad=clean_grad, perturbed_grad=perturbed_grad,
            grad_cams=() if grad_cam is None else tuple(_grad_cam_pairs(grad_cam, index)),
            layers=tuple(self.layer(key, channels) for key in keys),
        )  # fmt: skip

    def grads(self, key: Key) -> tuple[Tensor, Tensor]:
        """The margin's gradients with respect to the output; zero if a later layer detaches the graph."""
        both = (side.calls[key] for side in (self.clean, self.perturbed))
        clean, perturbed = (torch.zeros_like(one.output) if one.grad is None else one.grad for one in both)
        return clean[self.row], perturbed[self.row]

    def layer(self, key: Key, most: int) -> LayerPicture:
        """The channels that changed most, by decreasing change."""
        image = self.clean.calls[INPUT_KEY].output.shape[1:]
        outputs = [side.calls[key].output[self.row] for side in (self.clean, self.perturbed)]
        before, after, *grads = (as_map(values[None], image)[0] for values in (*outputs, *self.grads(key)))
        order = (after - before).flatten(1).double().norm(dim=1).sort(descending=True, stable=True).indices
        shown = tuple(
            Channel(number, *(_array(values[number]) for values in (before, after, *grads)))
            for number in order[:most].tolist()
        )
        return LayerPicture(key.name, shown)


def _passes(runner: Runner, keys: Sequence[Key], size: int, pairs: Pairs) -> list[tuple[Pass, Pass]]:
    passes = []
    for tile, _ in tiles(pairs, size):
        score = rival_margin(tile)
        clean, perturbed = (runner.run([key.layer for key in keys], points, score) for points in (tile.x, tile.x_adv))
        check_same_calls(clean, perturbed)
        passes.append((clean, perturbed))
    return passes


def _chosen(traced: Traced, most: int) -> Tensor:
    """Indices in the trace: first broken images, then robust ones, each by decreasing change of their margin."""
    order = traced.margin_change.sort(descending=True, stable=True).indices
    broken, robust = order[traced.pairs.broken[order]], order[~traced.pairs.broken[order]]
    share = max(most - len(robust), round(most * BROKEN_SHARE))
    first = broken[:share]
    return torch.cat([first, robust[: most - len(first)]])


def _at_even_steps(keys: Sequence[Key]) -> list[Key]:
    places = np.unique(np.linspace(0, len(keys) - 1, min(LAYERS, len(keys))).round().astype(int))
    return [keys[place] for place in places] if keys else []


def _grad_cam_pairs(grad_cam: Focus, index: int) -> Iterator[GradCamPair]:
    for aim, maps in grad_cam.aims.items():
        yield GradCamPair(
            aim, int(maps.label[index]), _array(maps.clean[index]), _array(maps.perturbed[index]),
            float(maps.correlation[index]), float(maps.overlap[index]),
        )  # fmt: skip


def _array(values: Tensor) -> Picture:
    return values.detach().float().cpu().numpy()
