"""Models that are no network of torch, by name: ONNX files."""

from robustkit.black_box.onnx_file import SUFFIX, OnnxModel
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import user_path

from .pixels import PixelModel
from .sources import ModelRequest


def is_black_box(name: str) -> bool:
    """Whether a name stands for a model that only answers."""
    return name.lower().endswith(SUFFIX)


def black_box_model(request: ModelRequest, *, train: bool) -> PixelModel:
    """The model of an ONNX file, with the normalisation of the request before it.

    Raises:
        UserError: it cannot be loaded, or is to get other weights.
    """
    if request.weights is not None:
        raise UserError(
            f"{shortened(request.name)} has weights of its own; leave out --weights, --train and --retrain."
        )
    network = OnnxModel(request.name, num_classes=request.num_classes, label_classes=request.classes)
    file = user_path(request.name).name
    classes = network.num_classes or request.classes or 0
    model = PixelModel(network, name=network.name, source=file, num_classes=classes, mean=request.mean, std=request.std)
    model.code = network.code
    return model
