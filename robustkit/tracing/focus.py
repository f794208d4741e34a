"""Grad-CAM of image pairs: which places of the image support a class, before and after an attack."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.errors import UserError
from robustkit.primitives.rows import padded

from .followed import Followed, executed, followed
from .gradcam import cam, overlap, rank_correlation
from .passes import Key, Runner, Score, tile_size, tiles
from .places import as_map, layout
from .points import Pairs
from .traced import Traced

Aim = Literal["true", "predicted"]


@dataclass(frozen=True)
class Maps:
    """Grad-CAM maps for one class per image, and their similarity before and after the attack."""

    label: Tensor  # [n] int64 the class
    clean: Tensor  # [n, h, w] in the resolution of the feature map
    perturbed: Tensor  # [n, h, w]

    @property
    def correlation(self) -> Tensor:
        """`[n]` Spearman's rank correlation of the two maps."""
        return rank_correlation(self.clean, self.perturbed)

    @property
    def overlap(self) -> Tensor:
        """`[n]` intersection over union of their foregrounds."""
        return overlap(self.clean, self.perturbed)


@dataclass(frozen=True)
class Focus:
    """Maps of all images of a trace at one call, for the true class and for the class predicted after the attack."""

    layer: str
    call: int
    aims: Mapping[Aim, Maps]

    @property
    def name(self) -> str:
        """The layer, and which of its calls if it is not the first."""
        return Key(self.layer, self.call).name


class NoFeatureMapError(UserError):
    """No layer of the network, or not the named layer, has a feature map."""


def focus(model: nn.Module | Classifier, traced: Traced, *, layer: str | None = None) -> Focus:
    """Grad-CAM on the clean and on the perturbed image of each pair.

    Args:
        model: the model that was traced.
        traced: its trace.
        layer: the output of its last call is the feature map, or a grid of tokens; None takes the last layer of the
            network that has several places and that the class scores depend on.

    Raises:
        NoFeatureMapError: there is no feature map.
    """
    classifier = as_classifier(model, traced.bounds)
    with classifier.session(classifier.input_format().moved(traced.pairs.x), traced.seed):
        runner = Runner(classifier, traced.seed)
        key, tile = _last_map(runner, traced.pairs) if layer is None else _named_map(runner, traced.pairs, layer)
        true, predicted = (
            _maps(runner, key, tile, traced.pairs, label) for label in (traced.pairs.y, traced.pairs.prediction)
        )
        return Focus(*key, {"true": true, "predicted": predicted})


def _named_map(runner: Runner, pairs: Pairs, layer: str) -> tuple[Key, int]:
    calls = followed(runner, pairs, layer)
    keys = [key for key, shape in calls.shapes.items() if layout(shape, pairs.x.shape[1:])]
    if not keys:
        raise NoFeatureMapError(
            f"The output of layer {layer!r} does not have several places of the image, which Grad-CAM needs; name a "
            "convolution."
        )
    return keys[-1], calls.tile


def _last_map(runner: Runner, pairs: Pairs) -> tuple[Key, int]:
    image = pairs.x.shape[1:]
    shapes = {
        key: shape for key, shape in executed(runner, pairs).items() if key.layer and shape and layout(shape, image)
    }
    candidates = Followed(shapes, {})
    tile, _ = next(tiles(pairs, candidates.tile))
    calls = runner.run(candidates.layers, tile.x, _logit(tile.y)).calls
    # If a transformer's head reads the class token only, the gradient at all places is zero in the last layers.
    keys = [key for key in shapes if (grad := calls[key].grad) is not None and bool(as_map(grad, image).any())]
    if not keys:
        raise NoFeatureMapError(
            "The network has no layer whose output has several places of the image, which Grad-CAM needs."
        )
    return keys[-1], tile_size(torch.Size(shapes[keys[-1]]).numel())


def _maps(runner: Runner, key: Key, tile: int, pairs: Pairs, label: Tensor) -> Maps:
    clean: list[Tensor] = []
    perturbed: list[Tensor] = []
    for number, (some, real) in enumerate(tiles(pairs, tile)):
        about = padded(label[number * tile :][:real], tile)
        for points, into in ((some.x, clean), (some.x_adv, perturbed)):
            taken = runner.run([key.layer], points, _logit(about)).calls[key]
            grad = torch.zeros_like(taken.output) if taken.grad is None else taken.grad
            features, grad = (as_map(values.float(), points.shape[1:]) for values in (taken.output, grad))
            into.append(cam(features, grad)[:real].cpu())
    return Maps(label, torch.cat(clean), torch.cat(perturbed))


def _logit(label: Tensor) -> Score:
    return lambda logits: logits.gather(1, label.to(logits.device)[:, None]).squeeze(1)
