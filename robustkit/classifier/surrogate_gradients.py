"""Stand-ins for a layer's gradient, by name: what `--bpda LAYER=SURROGATE` may say."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

from robustkit.errors import UserError, unknown
from robustkit.primitives.user_code import address, load_function

StandIn = Callable[[Tensor], Tensor]

STAND_INS: Mapping[str, StandIn | None] = {
    "identity": None,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def stand_ins(texts: Iterable[str]) -> dict[str, StandIn | None]:
    """Layers and stand-ins of texts such as `quantise`, `layer1.0=sigmoid` or `crop=mine.py:smooth_crop`.

    Raises:
        UserError: a stand-in is unknown, or a layer is given twice.
    """
    found: dict[str, StandIn | None] = {}
    for text in texts:
        layer, _, name = text.partition("=")
        if layer in found:
            raise UserError(f"--bpda names the layer {layer!r} twice; leave one out.")
        found[layer] = _stand_in(name or "identity")
    return found


def _stand_in(name: str) -> StandIn | None:
    where = address(name)
    if where is not None:
        return cast(StandIn, load_function(where).function)
    if name not in STAND_INS:
        raise unknown("surrogate of --bpda", name, [*STAND_INS, "file.py:function"])
    return STAND_INS[name]
