"""Architectures adapted to the images of a data set: torchvision's are made for 224 pixels, digits have 8.

A ResNet for small images gets the stem of He et al. 2016's CIFAR networks (3x3, stride 1, no pooling), which keeps
the resolution. For all others the image is resized inside the model, to the smallest square at which they work.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.host.torchvision_import import torchvision

from .preprocessing import placement

RESNETS = ("resnet", "resnext", "wide_resnet")
SMALL = 64  # up to this side: the standard stem would leave an 8x8 map of 32x32, and 2x2 of digits
SIDES = (32, 64, 128, 224, 299)


class Stem(NamedTuple):
    """The first convolution of a ResNet; a kernel of 3 means stride 1 and no pooling after it."""

    kernel: int
    channels: int


class AdaptedNetwork(NamedTuple):
    """A network with the preprocessing that it needs."""

    network: nn.Module
    size: int | None  # the image is resized to this square
    gray: bool  # the one channel of the image is repeated three times


def is_resnet(name: str) -> bool:
    """Whether torchvision's model of that name has a ResNet's stem."""
    return name.startswith(RESNETS)


def stem_for(shape: tuple[int, ...]) -> Stem:
    """The stem of a ResNet that is trained here on images of `[C, H, W]`."""
    return Stem(3, shape[0]) if max(shape[1:]) <= SMALL else Stem(7, 3)


def build_torchvision(name: str, num_classes: int) -> nn.Module:
    """The torchvision model with random weights and this number of classes."""
    # By default both warn about their slow initialisation and return tuples in training.
    extra: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    network: nn.Module = torchvision().models.get_model(name, weights=None, num_classes=num_classes, **extra)
    return network


def with_stem(network: nn.Module, stem: Stem, shape: tuple[int, ...] | None) -> AdaptedNetwork:
    """A ResNet whose first layers are replaced if they differ from `stem`."""
    old = network.get_submodule("conv1")
    assert isinstance(old, nn.Conv2d)
    if stem != (old.kernel_size[0], old.in_channels):
        stride, padding = (1, 1) if stem.kernel == 3 else (2, 3)
        new = nn.Conv2d(stem.channels, old.out_channels, stem.kernel, stride, padding, bias=False)
        nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
        network.add_module("conv1", new)
    if stem.kernel == 3:
        network.add_module("maxpool", nn.Identity())
    return AdaptedNetwork(network, None, shape is not None and shape[0] == 1 and stem.channels == 3)


def with_resizing(network: nn.Module, name: str, shape: tuple[int, ...]) -> AdaptedNetwork:
    """The network with the smallest of `SIDES`, at least as large as the image, at which it works.

    Raises:
        UserError: the images have neither 1 nor 3 channels, or the network works at no size.
    """
    channels, height, width = shape
    if channels not in (1, 3):
        raise UserError(
            f"{name} takes images with 1 or 3 channels, these images have {channels}; pass a model of your own, "
            "FILE.py:FUNCTION."
        )
    if min(height, width) >= SIDES[0] and _works(network, height, width):
        return AdaptedNetwork(network, None, channels == 1)
    for side in SIDES:
        if side >= max(height, width) and _works(network, side, side):
            return AdaptedNetwork(network, side, channels == 1)
    raise UserError(f"{name} does not work on images of {height}x{width}; resize them, or choose another model.")


def _works(network: nn.Module, height: int, width: int) -> bool:
    network.eval()
    try:
        with torch.no_grad():
            network(torch.zeros(1, 3, height, width, device=placement(network).device))
    except (RuntimeError, ValueError, AssertionError, IndexError):
        return False
    return True
