"""Each broken defence by name: what it does to a network, which layer is to blame, why, and what undoes it."""

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

Where = Literal["input", "middle", "output", "training"]

_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Hardswish, nn.ReLU6)
SMOOTHING = 0.5


@dataclass(frozen=True)
class Record:
    """What is wrong with a defence, as `diagnose` should find it."""

    name: str
    where: Where
    layer: str  # the guilty module's own name; empty for the one that gives the logits
    cause: str  # as a diagnosis calls it
    prescription: str  # bpda, eot, loss, probabilities, targets
    loss: str = "log-odds"  # the search loss that it fools
    make: Callable[[], nn.Module] | None = None
    refit: bool = False  # the network is trained on behind the defence, which changes its values too much otherwise


RECORDS: Mapping[str, Record] = {
    record.name: record
    for record in (
        Record("quantised", "input", "quantise", "step", "bpda", make=layers.Quantise),
        Record("binarised", "middle", "binarise", "step", "bpda", make=layers.Binarise, refit=True),
        Record("detached", "middle", "detach", "detached", "bpda", make=layers.Detach),
        Record("zeroed", "middle", "zeroed", "wrong backward", "bpda", make=layers.ZeroBackward),
        Record("kwta", "middle", "kwta", "curved", "bpda", make=layers.KWinners),
        Record("sigmoid", "middle", "sigmoid", "curved", "bpda", make=layers.SteepSigmoid, refit=True),
        Record("softmax", "output", "softmax", "probabilities", "probabilities", make=lambda: nn.Softmax(1)),
        Record("temperature", "output", "temperature", "loss saturated", "loss", "ce", layers.Temperature),
        Record("noisy", "input", "noise", "stochastic", "eot", make=layers.NoiseLayer),
        Record("smoothed", "training", "", "tied logits", "targets"),
    )
}


def names() -> list[str]:
    """All of them."""
    return list(RECORDS)


def build(name: str, network: nn.Module) -> nn.Module:
    """A copy of `network` with the defence called `name`, in eval mode.

    "smoothed" has no layer of its own: the copy is trained anew on digits with strongly smoothed labels.

    Raises:
        UserError: there is no such defence, or the network has no activation module to put it behind.
    """
    if name not in RECORDS:
        raise unknown("broken defence", name, RECORDS)
    record, network = RECORDS[name], copy.deepcopy(network)
    if record.make is None:
        return _trained_anew(network)
    if record.where == "middle":
        model = _behind_first_activation(network, record.layer, record.make())
        return fit(model) if record.refit else model.eval()
    parts = [(record.layer, record.make()), ("network", network)]
    return nn.Sequential(OrderedDict(parts if record.where == "input" else parts[::-1])).eval()


def place(name: str, model: nn.Module) -> str:
    """The dotted name of the guilty layer in a model that `build` made; its last one where no layer was put in."""
    layer = RECORDS[name].layer
    named = [str(full) for full, _ in model.named_modules()]
    return next(full for full in reversed(named) if not layer or full.split(".")[-1] == layer)


def _behind_first_activation(network: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    for full, module in network.named_modules():
        if isinstance(module, _ACTIVATIONS):
            parent, _, own = full.rpartition(".")
            setattr(network.get_submodule(parent), own, nn.Sequential(OrderedDict([("usual", module), (name, layer)])))
            return network
    raise UserError("The network has no activation module (such as nn.ReLU) to put a defence behind; use another one.")


def _trained_anew(network: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for module in network.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return fit(network, label_smoothing=SMOOTHING, epochs=20)
