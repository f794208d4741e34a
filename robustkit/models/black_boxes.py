"""Models that are no network of torch, by name: ONNX files and servers."""

from collections.abc import Iterable

from robustkit.black_box import HttpModel, OnnxModel
from robustkit.black_box.address import is_url, server_address
from robustkit.black_box.onnx_file import SUFFIX
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

from .pixels import PixelModel
from .sources import ModelRequest


def is_black_box(name: str) -> bool:
    """Whether a name stands for a model that only answers."""
    return is_url(name) or name.lower().endswith(SUFFIX)


def require_black_box(name: str) -> None:
    """Check the name of one, without loading it.

    Raises:
        UserError: there is no such file, or it is no address.
    """
    if is_url(name):
        server_address(name)
    elif not user_path(name).is_file():
        raise no_file(f"There is no file {shortened(name)}", user_path(name), "check the path of the model")


def require_server(models: Iterable[object]) -> None:
    """Check that a model is a server, because there are options for one.

    Raises:
        UserError: none is.
    """
    if not any(is_url(each) for each in models if isinstance(each, str)):
        raise UserError(
            "max_queries, rate, parallel and the like are for servers, and no model is on a server (https://...); to "
            "attack in several processes, take workers (--workers)."
        )


def black_box_model(request: ModelRequest) -> PixelModel:
    """The model of an ONNX file, with the normalisation of the request before it, or that of a server.

    Raises:
        UserError: it cannot be loaded.
    """
    network = _server(request) if is_url(request.name) else _file(request)
    source = network.source if isinstance(network, HttpModel) else user_path(request.name).name
    classes = network.num_classes or request.classes or 0
    model = PixelModel(
        network, name=network.name, source=source, num_classes=classes, normalisation=request.normalisation
    )
    model.code = network.code
    return model


def _file(request: ModelRequest) -> OnnxModel:
    return OnnxModel(request.name, num_classes=request.num_classes, label_classes=request.classes or None)


def _server(request: ModelRequest) -> HttpModel:
    place, images = server_address(request.name).place, request.images
    if request.normalisation is not None:
        raise UserError(f"{place} gets image files and normalises them itself; leave out --mean and --std.")
    if request.classes is None:
        raise UserError(f"{place} does not say how many classes it has; pass --num-classes.")
    names = () if images is None or images.data is None else images.data.class_names
    fewest = 2 if images is None else images.classes
    return HttpModel(
        request.name, num_classes=request.num_classes, fewest_classes=max(2, fewest), access=request.remote,
        class_names=names,
    )  # fmt: skip
