"""Masks from files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from robustkit import limits
from robustkit.data.dataset import Dataset
from robustkit.data.decoding import Decoder, PictureReader, is_transparent
from robustkit.data.pictures import LazyData, decode
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path
from robustkit.primitives.image_masks import ImageMasks
from robustkit.primitives.mask import Mask, mask_array


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
        if not str(given).strip():  # an empty text is no folder, although its path is the current one
            return Mask.of(str(given))
        fix = "give an image or an .npy file that exists, or patch:ROW,COLUMN,HEIGHT,WIDTH"
        raise no_file(f"{shortened(given)!r} is not a mask", path, fix)
    if path.suffix.lower() == ".npy":
        return Mask.of(_array(path), path.name)
    return Mask.of(_white(path), path.name)


def _white(path: Path) -> Tensor:
    """`[1, H, W]` bool: the pixels of a picture that are nearer to white than to black."""
    picture = decode(Decoder((path,), (0,), PictureReader(mode="L")), 0, shortened(path))
    if is_transparent(path):
        raise UserError(
            f"{path.name} has transparent pixels, and a mask is black and white; save it without transparency."
        )
    white = picture >= 0.5
    if not bool(white.any()):
        lightest = round(float(picture.max()) * 255)
        raise UserError(
            f"{path.name} has no pixel that may change: its lightest pixel is {lightest} of 255, and only pixels from "
            "128 on may change; save these as 255."
        )
    return white


def is_one_mask(given: str | Path) -> bool:
    """Whether a text or a file is one mask for all images; a folder or an .npy file may hold one of each."""
    text, path = str(given).strip(), user_path(given)
    # An empty text is no folder, although its path is the current one.
    return not text or text.startswith("patch:") or not (path.is_dir() or _is_array_file(path))


def _is_array_file(path: Path) -> bool:
    return path.suffix.lower() == ".npy" and path.is_file()


def masks_of_data(given: Mask | str | Path | Tensor | NDArray[Any], data: Dataset | None) -> Mask:
    """The mask of all images of a data set, or `ImageMasks` where each has one of its own.

    Args:
        given: as in `load_mask`; or masks `[N, H, W]` or `[N, 1, H, W]` of all N images, also in an .npy file; or a
            folder of pictures: FOLDER/CLASS/NAME.png or FOLDER/NAME.png for an image CLASS/NAME of a folder of
            pictures, and FOLDER/0.png, FOLDER/1.png, ... for other data.
        data: in the order in which the masks are; None where it is not known, so that there is no folder of pictures.

    Raises:
        UserError: as in `load_masks`; or a picture is missing.
    """
    source = "given as an array"
    if isinstance(given, Mask) or (isinstance(given, (str, Path)) and is_one_mask(given)):
        return load_mask(given)
    if isinstance(given, (str, Path)):
        path = user_path(given)
        if path.is_dir():
            if data is None:
                raise UserError(f"{shortened(path)} is a folder; name the data whose images it has the masks of.")
            return ImageMasks.of_all([load_mask(file) for file in _files(path, data)], path.name)
        source, given = path.name, _array(path)
    given = mask_array(given)
    several = given.ndim > 2 and (len(given) > 1 or (data is not None and len(data) == 1))
    if not several:
        return Mask.of(given, source)
    return ImageMasks.of_all(load_masks(given, len(given) if data is None else len(data), source), source)


def _files(folder: Path, data: Dataset) -> list[Path]:
    """The picture of each image's mask."""
    images = data.files if isinstance(data, LazyData) and data.files is not None else None
    names = [Path(str(number)) for number in range(len(data))] if images is None else [
        Path(file.parent.name) / file.stem for file in images]  # fmt: skip
    found = [next((file for file in (folder / f"{name}.png", folder / f"{name.name}.png") if file.is_file()), None)
             for name in names]  # fmt: skip
    missing = [f"{name}.png" for name, file in zip(names, found, strict=True) if file is None]
    if missing:
        raise UserError(
            f"{shortened(folder)} has no mask for {len(missing)} of {len(names)} images; the first is {missing[0]}."
        )
    return [file for file in found if file is not None]


def load_masks(
    given: Mask | str | Path | Tensor | NDArray[Any], count: int, source: str = "given as an array"
) -> list[Mask]:
    """The masks of so many images: those of an array `[count, H, W]`, also in an .npy file, or one for all of them.

    Raises:
        UserError: as in `load_mask`; or there are more or fewer masks than images.
    """
    if isinstance(given, (str, Path)) and _is_array_file(user_path(given)):
        source, given = user_path(given).name, _array(user_path(given))
    if isinstance(given, (Mask, str, Path)):
        return [load_mask(given)] * count
    masks = mask_array(given)
    if masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    if masks.ndim != 3 or (len(masks) == 1 and count != 1):
        return [Mask.of(masks, source)] * count
    if len(masks) != count:
        raise UserError(f"There are {len(masks)} masks and {count} images; give one for each, or one [H, W] for all.")
    return [_mask_of_image(number, mask, source) for number, mask in enumerate(masks)]


def _mask_of_image(number: int, mask: NDArray[Any], source: str) -> Mask:
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
        raise UserError(
            f"{path.name} is not a mask: it has {array.size:,} values, more than {limits.PICTURE_PIXELS:,}."
        )
    return np.array(array)
