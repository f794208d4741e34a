"""A layer call as a function, and its values image by image."""

import torch
from torch import Tensor, nn

from robustkit.classifier.generators import reseed
from robustkit.classifier.logits import unnamed
from robustkit.nethook.hooked import Inputs
from robustkit.nethook.structure import mapped

from .calls import floats

TINY = 1e-30


class LayerFunction:
    """A layer as a function of the float tensors among its inputs."""

    def __init__(self, module: nn.Module, inputs: Inputs, count: int, seed: int) -> None:
        self.module, self.inputs, self.count, self.seed = module, inputs, count, seed

    def __call__(self, tensors: list[Tensor], draw: int = 0) -> Tensor:
        """`[count, m]` all float outputs; another `draw` is another seed."""
        # Clones, because the layer may write into its input.
        queue = iter([tensor.clone() for tensor in tensors])
        args, kwargs = mapped(self.inputs, lambda part: next(queue) if part.is_floating_point() else part)
        reseed(self.seed + draw)
        outputs = [per_image(_computable(part), self.count) for part in floats(self.module(*args, **kwargs))]
        return torch.cat(outputs, 1) if outputs else torch.zeros(self.count, 0, device="cpu")


def _computable(values: Tensor) -> Tensor:
    """Values that torch can subtract: those of 8 bits as fp32."""
    return values.float() if values.element_size() == 1 else values


def per_image(values: Tensor, count: int) -> Tensor:
    """`[count, m]` along the axis that holds the images; values without such an axis are repeated for each image."""
    values = unnamed(values)
    if values.dim() and len(values) and len(values) % count == 0:
        return values.reshape(count, -1)
    for axis in range(1, values.dim()):
        if values.shape[axis] == count:
            return values.movedim(axis, 0).reshape(count, -1)
    return values.reshape(1, -1).expand(count, -1)


def has_rows_of_images(values: Tensor, count: int) -> bool:
    """Whether the first axis is that of so many images: not in a part of a batch, or in a batch filled up."""
    return values.dim() > 0 and len(values) > 0 and len(values) % count == 0


def length(rows: Tensor) -> Tensor:
    """`[n]` Euclidean norms of `[n, m]` rows."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms
