"""The defenses by name: what each adds to a network, which layer masks the gradient, why, and the remedy."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from robustkit.errors import UserError, unknown

from . import layers
from .base import fit

Position = Literal["input", "middle", "output", "training"]

_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Hardswish, nn.ReLU6)
SMOOTHING = 0.5


@dataclass(frozen=True)
class MaskedDefense:
    """A defense, and what `diagnose` should report about it."""

    name: str
    position: Position
    layer: str  # name of the masking layer; empty for the layer that returns the logits
    cause: str  # the verdict on that layer
    prescription: str  # bpda, eot, loss, probabilities, targets
    loss: str = "log-odds"  # the search loss for which the defense works
    new_layer: Callable[[], nn.Module] | None = None
    refit: bool = False  # train the network again behind the layer, which changes values too much otherwise


DEFENSES: Mapping[str, MaskedDefense] = {
    defense.name: defense
    for defense in (
        MaskedDefense("quantised", "input", "quantise", "step", "bpda", new_layer=layers.Quantise),
        MaskedDefense("binarised", "middle", "binarise", "step", "bpda", new_layer=layers.Binarise, refit=True),
        MaskedDefense("detached", "middle", "detach", "detached", "bpda", new_layer=layers.Detach),
        MaskedDefense("zeroed", "middle", "zeroed", "wrong backward", "bpda", new_layer=layers.ZeroBackward),
        MaskedDefense("kwta", "middle", "kwta", "curved", "bpda", new_layer=layers.KWinners),
        MaskedDefense("sigmoid", "middle", "sigmoid", "curved", "bpda", new_layer=layers.SteepSigmoid, refit=True),
        MaskedDefense(
            "softmax", "output", "softmax", "probabilities", "probabilities", new_layer=lambda: nn.Softmax(1)
        ),
        MaskedDefense("temperature", "output", "temperature", "loss saturated", "loss", "ce", layers.Temperature),
        MaskedDefense("noisy", "input", "noise", "randomized", "eot", new_layer=layers.NoiseLayer),
        MaskedDefense("smoothed", "training", "", "tied logits", "targets"),
    )
}


def names() -> list[str]:
    """The names of all defenses."""
    return list(DEFENSES)


def build(name: str, network: nn.Module) -> nn.Module:
    """A copy of `network` with the defense called `name`, in eval mode.

    "smoothed" adds no layer: the copy is trained again on digits with strong label smoothing.

    Raises:
        UserError: there is no such defense, or the network has no activation module to add it to.
    """
    if name not in DEFENSES:
        raise unknown("masked defense", name, DEFENSES)
    defense, network = DEFENSES[name], copy.deepcopy(network)
    if defense.new_layer is None:
        return _trained_again(network)
    if defense.position == "middle":
        model = _behind_first_activation(network, defense.layer, defense.new_layer())
        return fit(model) if defense.refit else model.eval()
    parts = [(defense.layer, defense.new_layer()), ("network", network)]
    return nn.Sequential(OrderedDict(parts if defense.position == "input" else parts[::-1])).eval()


def masking_layer(name: str, model: nn.Module) -> str:
    """The dotted name of the masking layer in a model of `build`; of the last layer if the defense adds none."""
    layer = DEFENSES[name].layer
    named = [str(full) for full, _ in model.named_modules()]
    return next(full for full in reversed(named) if not layer or full.split(".")[-1] == layer)


def _behind_first_activation(network: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    for full, module in network.named_modules():
        if isinstance(module, _ACTIVATIONS):
            parent, _, own = full.rpartition(".")
            setattr(network.get_submodule(parent), own, nn.Sequential(OrderedDict([("usual", module), (name, layer)])))
            return network
    raise UserError(
        "The network has no activation module (such as nn.ReLU) to add the defense to; use another network."
    )


def _trained_again(network: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for module in network.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return fit(network, label_smoothing=SMOOTHING, epochs=20)
