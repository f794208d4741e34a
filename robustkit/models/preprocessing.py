"""Networks with preprocessing before them. Layer names, hooks and surrogate gradients are about the network inside."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError


class Preprocessed(nn.Module):
    """A module that preprocesses its input, runs its network and returns the network's output."""

    network: nn.Module


def network_in(model: nn.Module) -> nn.Module:
    """The network itself, without the preprocessing before it."""
    while isinstance(model, Preprocessed):
        model = model.network
    return model


class Normalisation(NamedTuple):
    """What each channel is shifted and divided by before a network."""

    mean: Sequence[float]
    std: Sequence[float]


class Normalised(Preprocessed):
    """A network with the normalisation of its training before it: `(x - mean) / std` per channel."""

    def __init__(
        self,
        network: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        bounds: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__()
        check_statistics(mean, std, bounds)
        self.network = network
        self.mean: Tensor
        self.std: Tensor
        device, self.dtype = placement(network)
        self.register_buffer("mean", torch.tensor(mean, device=device).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, device=device).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pixels `[B, C, H, W]`."""
        return self.network(((x - self.mean) / self.std).to(self.dtype))  # type: ignore[no-any-return]


def require_channels(mean: Tensor, channels: int, name: str) -> None:
    """Refuse a normalisation that has another number of channels than the images that it gets.

    Raises:
        UserError: it has; a single number fits all.
    """
    if mean.numel() not in (1, channels):
        raise UserError(
            f"mean and std have {mean.numel()} numbers, but {name} gets images of "
            f"{'one channel' if channels == 1 else f'{channels} channels'}."
        )


def require_normalisable(model: nn.Module, image: Tensor, name: str) -> None:
    """Refuse an image `[*S]` that the normalisation before a network does not fit; one number for all values fits any
    image with rows.

    Raises:
        UserError: it has no channels, or another number of them.
    """
    if not isinstance(model, Normalised) or (model.mean.numel() == 1 and image.dim() > 1):
        return
    if image.dim() != 3:
        raise UserError(
            f"mean and std are for images of three axes, channels first, but {name} gets {list(image.shape)}; "
            "normalise inside the model."
        )
    require_channels(model.mean, len(image), name)


def check_statistics(mean: Sequence[float], std: Sequence[float], bounds: tuple[float, float] = (0.0, 1.0)) -> None:
    """Refuse a normalisation that cannot be meant for pixels in `bounds`.

    Raises:
        UserError: the two have different lengths, or a number is not finite or in another unit than the pixels.
    """
    low, high = bounds
    if any(isinstance(value, (int, float)) or any(isinstance(each, str) for each in value) for value in (mean, std)):
        raise UserError("mean and std must be lists with one number per channel, such as mean=[0.5].")
    if len(mean) != len(std) or not len(mean):
        raise UserError(f"mean has {len(mean)} numbers and std {len(std)}; give each one number per channel.")
    fix = "divide it by 255, and the other of mean and std too" if bounds == (0, 1) else "give it in their unit"
    for value in (*mean, *std):
        if not math.isfinite(value):
            raise UserError(f"mean and std must be finite numbers, not {value:g}.")
    for value in mean:
        if not low <= value <= high:
            raise UserError(f"mean is {value:g}, but pixels lie in [{low:g}, {high:g}]; {fix}.")
    for value in std:
        if value <= 0:
            raise UserError(f"std must be positive, not {value:g}; it divides the pixels.")
        # A half is the most that pixels can have, and 1 means no scaling; those of 0 to 255 are 20 to 80.
        if value > 4 * (high - low):
            raise UserError(f"std is {value:g}, but pixels lie in [{low:g}, {high:g}]; {fix}.")


def normalisation_of(mean: Sequence[float] | None, std: Sequence[float] | None) -> Normalisation | None:
    """The normalisation that two arguments give; None without both.

    Raises:
        UserError: only one of them is given.
    """
    if (mean is None) != (std is None):
        raise UserError("mean and std belong together: give both or neither.")
    return None if mean is None or std is None else Normalisation(mean, std)


class Placement(NamedTuple):
    """Where a model's weights are, and in which floating point type."""

    device: torch.device
    dtype: torch.dtype


def placement(model: nn.Module) -> Placement:
    """That of the first floating point weight; of a model without any, the device of its first buffer, and fp32."""
    floats = (Placement(weight.device, weight.dtype) for weight in model.parameters() if weight.is_floating_point())
    device = next((buffer.device for buffer in model.buffers()), torch.device("cpu"))
    return next(floats, Placement(device, torch.float32))


def require_values(model: nn.Module) -> None:
    """Refuse a model whose weights have shapes and no values.

    Raises:
        UserError: a weight is on the device meta.
    """
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if weight.is_meta:
            raise UserError(
                f"The weight {name} has no values (it is on the device meta); build the model outside of "
                "torch.device('meta') and load its weights."
            )
