"""Masks from files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robustkit import limits
from robustkit.data.decoding import Decoder
from robustkit.errors import UserError
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
    picture, _ = Decoder((path,), (0,), mode="L")[0]
    return Mask.of(picture >= 0.5, path.name)


def _array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise UserError(f"{path.name} cannot be read as an array; write it with numpy.save.") from None
    if array.size > limits.PICTURE_PIXELS:
        raise UserError(f"{path.name} is no mask: it has {array.size:,} values, more than {limits.PICTURE_PIXELS:,}.")
    return np.array(array)
