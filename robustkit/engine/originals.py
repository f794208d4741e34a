"""The caller's own images, where an attack's are scaled or rounded copies of them.

Attacks search in [0, 1] and in the model's precision. What the caller is promised (a distance, bounds, a verdict) must
hold for the tensor that the caller gets, so such points are projected and judged in the caller's units and type.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.primitives.rounding import Bounds


@dataclass(frozen=True)
class Original:
    """An image as the caller gave it."""

    image: Tensor  # [*S]
    bounds: Bounds


def originals(classifier: Classifier, x: Tensor) -> Tensor:
    """The caller's images on the model's device, bit for bit, in the wider of their type and the model's."""
    given = classifier.input_format()
    dtype = torch.promote_types(x.dtype, given.dtype)
    if given.device.type == "mps" and dtype == torch.float64:
        dtype = torch.float32  # Apple's devices have no float64
    return x.detach().to(given.device, dtype)


def same_bits(images: Tensor, own: Tensor) -> bool:
    """Whether the images of an attack are the caller's own."""
    return images.dtype == own.dtype and torch.equal(images, own)


def judging(classifier: Classifier) -> Classifier:
    """The classifier that judges points in the caller's units: it passes them to the model as they are."""
    smoothing, (low, high) = classifier.smoothing, classifier.bounds
    if smoothing is not None:
        smoothing = replace(smoothing, sigma=smoothing.sigma * (high - low))
    return replace(
        classifier, bounds=(0.0, 1.0), smoothing=smoothing, fold=False, channels_last=False, compile=False,
        cuda_graphs=False, bf16=False, tf32=False, bpda={},
    )  # fmt: skip
