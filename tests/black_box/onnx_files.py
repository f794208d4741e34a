"""Small networks of this test suite as ONNX files, written with onnx.helper: an export by torch takes seconds."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import nn


def save_onnx(
    path: Path, network: nn.Sequential, *, batch: int | str = "images", labels: bool = False, flattened_to: int = 0
) -> Path:
    """Convolutions, BatchNorm, ReLU, Flatten and linear layers of 1 x 8 x 8 images; `labels` adds an ArgMax.

    `flattened_to` writes a number of images into the network, whatever its input says.
    """
    nodes, weights, last = [], [], "pixels"
    for number, layer in enumerate(module for module in network.modules() if not isinstance(module, nn.Sequential)):
        names = [f"{number}.{name}" for name in _tensors(layer)]
        weights += [
            numpy_helper.from_array(value.detach().numpy(), name)
            for name, value in zip(names, _tensors(layer).values(), strict=True)
        ]
        nodes.append(helper.make_node(_KIND[type(layer)], [last, *names], [str(number)], **_settings(layer)))
        last = str(number)
    if flattened_to:
        weights.append(numpy_helper.from_array(np.array([flattened_to, 10]), "rows"))
        nodes.append(helper.make_node("Reshape", [last, "rows"], ["flat"]))
        last = "flat"
    if labels:
        nodes.append(helper.make_node("ArgMax", [last], ["class"], axis=1, keepdims=0))
        output = helper.make_tensor_value_info("class", TensorProto.INT64, [batch])
    else:
        output = helper.make_tensor_value_info(last, TensorProto.FLOAT, [batch, 10])
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [batch, 1, 8, 8])
    graph = helper.make_graph(nodes, "digits", [pixels], [output], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


_KIND = {
    nn.Conv2d: "Conv", nn.BatchNorm2d: "BatchNormalization", nn.ReLU: "Relu", nn.Flatten: "Flatten", nn.Linear: "Gemm"
}  # fmt: skip


def _tensors(layer):
    if isinstance(layer, nn.BatchNorm2d):
        names = ("weight", "bias", "running_mean", "running_var")
        return {name: getattr(layer, name) for name in names}
    return dict(layer.named_parameters())


def _settings(layer):
    if isinstance(layer, nn.Conv2d):
        return {"pads": [*layer.padding, *layer.padding]}
    return {"transB": 1} if isinstance(layer, nn.Linear) else {}
