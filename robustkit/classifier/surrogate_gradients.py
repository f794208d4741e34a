"""Surrogate gradients by name: the functions that `--bpda LAYER=FUNCTION` may name."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

from robustkit.errors import UserError, unknown
from robustkit.primitives.user_code import address, load_function

SurrogateGradient = Callable[[Tensor], Tensor]

SURROGATE_GRADIENTS: Mapping[str, SurrogateGradient | None] = {
    "identity": None,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def surrogate_gradients(texts: Iterable[str]) -> dict[str, SurrogateGradient | None]:
    """Layers and surrogate gradients from texts such as `quantise`, `layer1.0=sigmoid` or `crop=mine.py:smooth_crop`.

    Raises:
        UserError: a function is unknown, or a layer is given twice.
    """
    surrogates: dict[str, SurrogateGradient | None] = {}
    for text in texts:
        layer, _, name = text.partition("=")
        if layer in surrogates:
            raise UserError(f"--bpda names the layer {layer!r} twice; leave one out.")
        surrogates[layer] = _surrogate_gradient(name or "identity")
    return surrogates


def _surrogate_gradient(name: str) -> SurrogateGradient | None:
    where = address(name)
    if where is not None:
        return cast(SurrogateGradient, load_function(where).function)
    if name not in SURROGATE_GRADIENTS:
        raise unknown("function of --bpda", name, [*SURROGATE_GRADIENTS, "file.py:function"])
    return SURROGATE_GRADIENTS[name]
