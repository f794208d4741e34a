"""Attention of Hugging Face's transformers, opened: its probabilities become the output of a layer.

The library's attention layers call a function that their configuration names. Inside the context it is the one below.
"""

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LIBRARY = "transformers.modeling_utils"
_NAME = "robustkit"  # of the function in the library's table
_PROJECTIONS = {"q_proj", "k_proj", "v_proj"}
PROBABILITIES = "attn_drop"  # the layer that is added, called as timm's


def library_attention(root: nn.Module) -> dict[str, nn.Module]:
    """The attention layers of transformers in a model, by name."""
    if _LIBRARY not in sys.modules:
        return {}
    return {name: module for name, module in root.named_modules() if _is_attention(module)}


@contextmanager
def opened_library_attention(layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """Let the layers compute their attention step by step while the context lasts."""
    if layers:
        sys.modules[_LIBRARY].ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
    before: list[tuple[Any, object]] = [(module, module.config) for module in layers.values()]
    try:
        for module, config in before:
            # The configuration is shared by all parts of the model, and the masks are made as before.
            module.config = copy.copy(config)
            module.config._attn_implementation_internal = _NAME
            module.add_module(PROBABILITIES, nn.Identity())
        yield
    finally:
        for module, config in before:
            module.config = config
            module._modules.pop(PROBABILITIES, None)


def _is_attention(module: nn.Module) -> bool:
    home = type(module).__module__
    return (
        home.startswith("transformers.models.")
        and module._modules.keys() >= _PROJECTIONS
        and PROBABILITIES not in module._modules
        and hasattr(sys.modules[home], "ALL_ATTENTION_FUNCTIONS")
        and isinstance(getattr(getattr(module, "config", None), "_attn_implementation", None), str)
    )


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    scaling: float | None = None, position_bias: Tensor | None = None, **others: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What the library's own functions compute; `[B, heads, tokens, C]` each."""
    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    for added in (attention_mask, position_bias):
        if added is not None:
            scores = scores.masked_fill(~added, -torch.inf) if added.dtype == torch.bool else scores + added
    probabilities = module.get_submodule(PROBABILITIES)(scores.softmax(3))
    kept = F.dropout(probabilities, dropout, module.training)
    return (kept @ value).transpose(1, 2).contiguous(), probabilities
