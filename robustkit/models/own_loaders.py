"""Models that bring their own weights, and who loads them: prefixes such as "hf:", black boxes, and saved programs."""

from collections.abc import Callable
from typing import NamedTuple

from .black_boxes import black_box_model, is_black_box, require_black_box
from .clean_training import Report
from .pixels import PixelModel
from .prefixes import prefixed
from .programs import is_program
from .sources import ModelRequest, program_model


class OwnLoader(NamedTuple):
    """Who loads the models of some names."""

    takes: Callable[[str], bool]
    require: Callable[[str], None]  # checks a name without loading the model or asking the network
    load: Callable[[ModelRequest, Report], PixelModel]
    or_checkpoint: bool = False  # whether other weights can be put into the model


def own_loader(name: str) -> OwnLoader | None:
    """Who loads the model of a name; None for architectures and for networks of a user's file."""
    return next((loader for loader in _LOADERS if loader.takes(name)), None)


def _require_prefixed(name: str) -> None:
    found = prefixed(name)
    assert found is not None
    found.loader.require(found.rest)


def _prefixed_model(request: ModelRequest, report: Report) -> PixelModel:
    found = prefixed(request.name)
    assert found is not None
    return found.loader.load(request, report)


_LOADERS = (
    OwnLoader(lambda name: prefixed(name) is not None, _require_prefixed, _prefixed_model, or_checkpoint=True),
    OwnLoader(is_black_box, require_black_box, lambda request, report: black_box_model(request)),
    OwnLoader(is_program, lambda name: None, program_model),
)
