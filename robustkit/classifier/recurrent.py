"""Recurrent layers on a GPU: cuDNN has no backward pass for them in eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_LAYERS = (nn.RNN, nn.LSTM, nn.GRU)


@contextmanager
def differentiable_recurrences(model: nn.Module, device: torch.device) -> Iterator[None]:
    """RNN, LSTM and GRU layers in eval mode have input gradients on a GPU while the context lasts.

    They are in train mode without dropout, where they compute what they compute in eval mode.

    Args:
        model: in the mode that its layers keep.
        device: where it computes; on other devices than a GPU nothing is to be done.
    """
    if device.type != "cuda":
        yield
        return
    # Layers of a subclass may do other things in train mode, too.
    layers = [vars(layer) for layer in model.modules() if type(layer) in _LAYERS and not layer.training]
    before = [{name: layer[name] for name in ("training", "dropout")} for layer in layers]
    try:
        for layer in layers:
            layer.update(training=True, dropout=0.0)
        yield
    finally:
        for layer, values in zip(layers, before, strict=True):
            layer.update(values)
