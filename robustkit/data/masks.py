"""Masks from files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robustkit import limits
from robustkit.data.decoding import Decoder
from robustkit.data.pictures import decode
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import user_path
from robustkit.primitives.mask import Mask


def load_mask(given: Mask | str | Path | Tensor | NDArray[Any]) -> Mask:
    """The mask of an array, of a text "patch:ROW,COLUMN,HEIGHT,WIDTH", of a picture or of an .npy file.

    Args:
        given: an array `[H, W]` of two values, of which 0 stays; in a picture, what is nearer to white may change.

    Raises:
        UserError: it is no mask; or no pixel may change.
    """
    if not isinstance(given, (str, Path)):
        return Mask.of(given)
    if isinstance(given, str) and given.strip().startswith("patch:"):
        return Mask.of(given)
    path = user_path(given)
    if not path.is_file():
        return Mask.of(str(given))  # which says what masks there are
    if path.suffix.lower() == ".npy":
        return Mask.of(_array(path), path.name)
    picture = decode(Decoder((path,), (0,), mode="L"), 0, shortened(path))
    return Mask.of(picture >= 0.5, path.name)


def load_masks(given: Mask | str | Path | Tensor | NDArray[Any], count: int) -> list[Mask]:
    """The masks of so many images: those of an array `[count, H, W]`, also in an .npy file, or one for all of them.

    Raises:
        UserError: as in `load_mask`; or there are more or fewer masks than images.
    """
    if isinstance(given, (str, Path)) and user_path(given).suffix.lower() == ".npy" and user_path(given).is_file():
        source, given = user_path(given).name, _array(user_path(given))
    else:
        source = "given as an array"
    if isinstance(given, (Mask, str, Path)):
        return [load_mask(given)] * count
    masks = given if isinstance(given, Tensor) else np.asarray(given)
    if masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    if masks.ndim != 3 or (len(masks) == 1 and count != 1):
        return [Mask.of(masks, source)] * count
    if len(masks) != count:
        raise UserError(f"There are {len(masks)} masks and {count} images; give one for each, or one [H, W] for all.")
    return [_mask_of_image(number, mask, source) for number, mask in enumerate(masks)]


def _mask_of_image(number: int, mask: Tensor | NDArray[Any], source: str) -> Mask:
    try:
        return Mask.of(mask, source)
    except UserError as error:
        raise UserError(f"Mask {number}, counted from 0: {error}") from None


def _array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # a broken header makes numpy raise almost anything
        raise UserError(f"{path.name} cannot be read as an array; write it with numpy.save.") from None
    if array.size > limits.PICTURE_PIXELS:
        raise UserError(f"{path.name} is no mask: it has {array.size:,} values, more than {limits.PICTURE_PIXELS:,}.")
    return np.array(array)
