"""The model of an attack on files, loaded for the images that are attacked."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from robustkit.black_box.address import is_url
from robustkit.data import Dataset, LazyData
from robustkit.data.decoding import is_gray
from robustkit.errors import UserError
from robustkit.models import PixelModel
from robustkit.models.compatibility import require_compatible
from robustkit.models.image_spec import ImageSpec, image_spec_of
from robustkit.models.programs import is_program
from robustkit.primitives import user_code

from .inputs import pictures
from .known_images import KnownImages

Load = Callable[[Dataset | str | None], PixelModel]

_FIX = "resize the images (--image-size N), or choose another model"
_MODES_TRIED: tuple[Literal["RGB", "L"], ...] = ("RGB", "L")
_MODES: dict[int, Literal["L", "RGB"]] = {1: "L", 3: "RGB"}


class ModelAndPictures(NamedTuple):
    """A model and the pictures in the size that it takes."""

    model: PixelModel
    data: LazyData


def model_and_pictures(name: str, files: tuple[Path, ...], known: KnownImages, load: Load) -> ModelAndPictures:
    """Load the model, and open the pictures as it takes them: gray if it has one channel, else in colour.

    Raises:
        UserError: a picture cannot be decoded, or the model cannot be loaded or does not take the pictures.
    """
    if known.channels is None:
        return _tried(name, files, known, load)
    if known.channels not in _MODES:
        raise UserError(f"Image files have 1 or 3 channels, and the model's images {known.channels}; give arrays.")
    data = pictures(files, known, _MODES[known.channels])
    model = load(data if known.dataset is None else known.dataset)
    require_compatible(model, _spec(data), _FIX)
    return ModelAndPictures(model, data)


def model_for_arrays(name: str, data: Dataset, known: KnownImages, load: Load) -> PixelModel:
    """Load the model for images of a file.

    Raises:
        UserError: it cannot be loaded, or does not take the images.
    """
    unknown_classes = not data.class_names and _is_own(name)
    model = load(None if unknown_classes else data) if known.dataset is None else load(known.dataset)
    require_compatible(model, _spec(data)._replace(classes=len(data.class_names)))
    return model


def _tried(name: str, files: tuple[Path, ...], known: KnownImages, load: Load) -> ModelAndPictures:
    """The model with pictures in colour or, if it refuses those, with gray ones; a server gets them as they are."""
    own = _is_own(name)
    model = load(None) if own else None
    refusals: list[UserError] = []
    for mode in _as_they_are(files) if is_url(name) else _MODES_TRIED:
        data = pictures(files, known, mode)
        try:
            fitting = load(data) if model is None else model
            require_compatible(fitting, _spec(data), _FIX)
            return ModelAndPictures(fitting, data)
        except UserError as error:
            refusals.append(error)
    # A gray model refuses colours by their channels, which says nothing about the size that it also refuses.
    raise next((each for each in refusals if "channels" not in str(each)), refusals[0])


def _as_they_are(files: tuple[Path, ...]) -> tuple[Literal["RGB", "L"]]:
    """Gray if all pictures are."""
    return ("L",) if all(map(is_gray, files)) else ("RGB",)


def _is_own(name: str) -> bool:
    """Whether a name is that of a network whose images are not known before it is loaded."""
    return user_code.address(name) is not None or is_program(name)


def _spec(data: Dataset) -> ImageSpec:
    """The images of any data set, without its classes: what matters is whether the model takes them."""
    spec = image_spec_of(data)
    assert spec is not None
    return spec._replace(classes=0, data=None)
