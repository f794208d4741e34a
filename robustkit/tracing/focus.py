"""Grad-CAM of image pairs: where the network looks for a class before and after an attack."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.errors import UserError
from robustkit.primitives.rows import padded

from .gradcam import cam, overlap, rank_correlation
from .leaves import Followed, executed, followed
from .passes import Key, Runner, Score, tile_size, tiles
from .places import as_map, layout
from .points import Pairs
from .traced import Traced

Aim = Literal["true", "predicted"]


@dataclass(frozen=True)
class Maps:
    """The maps of one class per image, and how alike they are before and after the attack."""

    label: Tensor  # [n] int64 the class they are about
    clean: Tensor  # [n, h, w] on the places of the feature map
    moved: Tensor  # [n, h, w]

    @property
    def correlation(self) -> Tensor:
        """`[n]` Spearman's rank correlation of the two maps."""
        return rank_correlation(self.clean, self.moved)

    @property
    def overlap(self) -> Tensor:
        """`[n]` intersection over union of their foregrounds."""
        return overlap(self.clean, self.moved)


@dataclass(frozen=True)
class Focus:
    """Maps of the images of a trace at one call, for the true class and for the one predicted after the attack."""

    layer: str
    call: int
    aims: Mapping[Aim, Maps]

    @property
    def name(self) -> str:
        """The layer, and which of its calls if it is not the first."""
        return Key(self.layer, self.call).name


class NoFeatureMapError(UserError):
    """Nothing in the network, or not the layer that was named, has values for places of the image."""


def focus(model: nn.Module | Classifier, traced: Traced, *, layer: str | None = None) -> Focus:
    """Grad-CAM on the clean and on the perturbed image of each pair.

    Args:
        model: the one that was traced.
        traced: the images.
        layer: whose last call gives the feature map, or the tokens of a grid; None takes the last one in the network
            that has several places and that the class scores depend on.

    Raises:
        NoFeatureMapError: there is none.
    """
    classifier = model if isinstance(model, Classifier) else Classifier(model, bounds=traced.bounds)
    with classifier.session(classifier.input.moved(traced.pairs.x), traced.seed):
        runner = Runner(classifier, traced.seed)
        key, tile = _last_map(runner, traced.pairs) if layer is None else _named_map(runner, traced.pairs, layer)
        true, predicted = (
            _maps(runner, key, tile, traced.pairs, label) for label in (traced.pairs.y, traced.pairs.prediction)
        )
        return Focus(*key, {"true": true, "predicted": predicted})


def _named_map(runner: Runner, pairs: Pairs, layer: str) -> tuple[Key, int]:
    found = followed(runner, pairs, layer)
    keys = [key for key, shape in found.shapes.items() if layout(shape, pairs.x.shape[1:])]
    if not keys:
        raise NoFeatureMapError(
            f"The output of layer {layer!r} does not have several places of the image, which Grad-CAM needs; name a "
            "convolution."
        )
    return keys[-1], found.tile


def _last_map(runner: Runner, pairs: Pairs) -> tuple[Key, int]:
    image = pairs.x.shape[1:]
    shapes = {
        key: shape for key, shape in executed(runner, pairs).items() if key.layer and shape and layout(shape, image)
    }
    found = Followed(shapes, {})
    some, _ = next(tiles(pairs, found.tile))
    calls = runner.run(found.layers, some.x, _logit(some.y)).calls
    # A transformer that reads its class token alone leaves the gradient of all places at zero in its last layers.
    keys = [key for key in shapes if (grad := calls[key].grad) is not None and bool(as_map(grad, image).any())]
    if not keys:
        raise NoFeatureMapError(
            "The network has no layer whose output has several places of the image, which Grad-CAM needs."
        )
    return keys[-1], tile_size(torch.Size(shapes[keys[-1]]).numel())


def _maps(runner: Runner, key: Key, tile: int, pairs: Pairs, label: Tensor) -> Maps:
    clean: list[Tensor] = []
    moved: list[Tensor] = []
    for number, (some, real) in enumerate(tiles(pairs, tile)):
        about = padded(label[number * tile :][:real], tile)
        for points, into in ((some.x, clean), (some.x_adv, moved)):
            taken = runner.run([key.layer], points, _logit(about)).calls[key]
            grad = torch.zeros_like(taken.output) if taken.grad is None else taken.grad
            features, grad = (as_map(values.float(), points.shape[1:]) for values in (taken.output, grad))
            into.append(cam(features, grad)[:real].cpu())
    return Maps(label, torch.cat(clean), torch.cat(moved))


def _logit(label: Tensor) -> Score:
    return lambda logits: logits.gather(1, label.to(logits.device)[:, None]).squeeze(1)
