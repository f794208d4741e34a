"""What a Hugging Face image processor does to pixels, read from its settings and compared with what it really does."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

from .fit import ImageFit, Side
from .library import quiet_transformers

_FILES = ("preprocessor_config.json", "processor_config.json")
_WARPED = 384  # ConvNeXt's processor crops below this side, and squeezes from it on
_LEVIT = 256 / 224  # LeViT's processor enlarges by it before the crop
_TOLERANCE = 1e-3  # in units of the standard deviation; one step of 8 bits is 0.02


class Processing(NamedTuple):
    """What stands between pixels in [0, 1] and the network."""

    fit: ImageFit
    mean: list[float]
    std: list[float]
    resize: int | None  # the short side before the crop, for pictures that are read from files
    side: int | None  # of the square that the network takes


def read_processing(folder: Path, where: str, channels: int) -> Processing:
    """The preprocessing of a model's own image processor.

    Args:
        folder: of the model.
        where: its address, for error messages.
        channels: of the images that the network takes.

    Raises:
        UserError: there is no processor, or it does something else than resize, crop and normalise.
    """
    if not any((folder / name).is_file() for name in _FILES):
        raise UserError(
            f"{shortened(where)} has no {_FILES[0]}, so its normalisation is not known; save the processor beside the "
            "model: processor.save_pretrained(FOLDER)."
        )
    with quiet_transformers() as transformers:
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, backend="torchvision", trust_remote_code=False, local_files_only=True
            )
            made = _processing(processor, channels)
            same = _is_same(processor, made, channels)
        except UserError:
            raise
        except Exception as error:  # settings of any kind reach the processor's own code
            reason = shortened(str(error).split("\n")[0].rstrip(".") or type(error).__name__)
            raise UserError(
                f"The image processor of {shortened(where)} cannot be used ({reason}); load the model in a function "
                "of yours: --model FILE.py:FUNCTION."
            ) from error
    if not same:
        raise UserError(
            f"The image processor of {shortened(where)} ({type(processor).__name__}) does more than resize, crop and "
            "normalise; load the model in a function of yours: --model FILE.py:FUNCTION."
        )
    return made


def _processing(processor: Any, channels: int) -> Processing:
    fit = _fit(processor)
    mean, std = _mean(processor, channels), _std(processor, channels)
    side = fit.fitting
    square = side is not None and side.height == side.width
    short = fit.short or (None if fit.size is None else min(fit.size))
    return Processing(fit, mean, std, short, side.height if side is not None and square else None)


def _fit(processor: Any) -> ImageFit:
    size, short, crop = None, None, None
    edge = _setting(processor.size, "shortest_edge") if processor.do_resize else None
    if edge is not None and _setting(processor.size, "longest_edge") is not None:
        raise UserError("Its image processor bounds the long side too; load the model in a function of yours.")
    share = _setting(processor, "crop_pct")
    if processor.do_center_crop:
        crop = _side(processor.crop_size)
    if edge is None:
        size = _side(processor.size) if processor.do_resize else None
    elif share is not None and crop is None:
        short, crop = (int(edge / share), Side(edge, edge)) if edge < _WARPED else (None, None)
        size = Side(edge, edge) if crop is None else None
    elif share is not None:
        short = int(edge / share)
    else:
        short = int(_LEVIT * edge) if type(processor).__name__.startswith("Levit") else edge
    for value in (*(size or ()), *(crop or ()), short or 0):
        limits.require_at_most("The side of an image processor's images", value, limits.IMAGE_SIDE)
    return ImageFit(size, short, crop, int(processor.resample or 0), bool(_setting(processor, "do_flip_channel_order")))


def _mean(processor: Any, channels: int) -> list[float]:
    """What is subtracted from pixels in [0, 1]: rescaling and normalising in one."""
    offset = 1.0 if processor.do_rescale and _setting(processor, "rescale_offset") else 0.0
    mean = _list(processor.image_mean, channels) if processor.do_normalize else [0.0] * channels
    return [(each + offset) / _scale(processor) for each in mean]


def _std(processor: Any, channels: int) -> list[float]:
    """What they are divided by then."""
    std = _list(processor.image_std, channels) if processor.do_normalize else [1.0] * channels
    # EfficientNet's divides twice.
    twice = bool(_setting(processor, "include_top"))
    return [(each * each if twice else each) / _scale(processor) for each in std]


def _scale(processor: Any) -> float:
    return 255.0 * float(processor.rescale_factor) if processor.do_rescale else 255.0


def _is_same(processor: Any, made: Processing, channels: int) -> bool:
    """Whether both make the same of an image that has to be resized and cropped."""
    height, width = made.fit.fitting or Side(32, 32)
    ramp = torch.linspace(0, 1, channels * (height + 5) * (width + 9), device="cpu")
    x = ramp.sin().abs().reshape(1, channels, height + 5, -1)
    theirs: Tensor = processor(images=255 * x[0], return_tensors="pt", input_data_format="channels_first").pixel_values
    mean, std = (torch.tensor(values, device="cpu").view(-1, 1, 1) for values in (made.mean, made.std))
    ours = (made.fit.processed(x) - mean) / std
    return theirs.shape == ours.shape and bool((theirs - ours).abs().max() < _TOLERANCE)


def _side(size: Any) -> Side:
    return Side(int(size.height), int(size.width))


def _setting(of: Any, name: str) -> Any:
    """A setting that only some processors have."""
    return getattr(of, name, None)


def _list(values: Any, channels: int) -> list[float]:
    return [float(values)] * channels if isinstance(values, (int, float)) else [float(each) for each in values]
