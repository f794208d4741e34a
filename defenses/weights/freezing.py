"""Freeze weights by a short text, so that neither `.train()` nor an optimizer changes them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import takewhile

from torch import nn

from robustkit.errors import UserError, unknown

from .batchnorm import NORMS, norms_of, tracks_statistics

_SYNTAX = ("none", "prefix:LAYER", "all-but:LAYER", "bn-only")


def frozen_names(network: nn.Module, text: str, epoch: int = 0) -> set[str]:
    """Names of the parameters that `text` freezes.

    Args:
        network: whose parameters.
        text: "none"; "prefix:LAYER", all up to and including that layer, in order of definition; "all-but:LAYER";
            "bn-only", all but BatchNorm's and the last layer's; or globs of parameters or layers, separated by commas.
            For gradual unfreezing, several of these, each with the first epoch in which it holds:
            "0:all-but:fc;2:prefix:layer2;4:none".
        epoch: for gradual unfreezing, from 0.

    Raises:
        UserError: it freezes nothing by mistake, or everything.
    """
    text = [rule for first, rule in phases(text) if first <= epoch][-1]
    names = [name for name, _ in network.named_parameters()]
    kind, _, rest = text.partition(":")
    if kind == "none" and not rest:
        frozen_set: set[str] = set()
    elif kind == "prefix":
        frozen_set = set(names[: _last(names, _names_within(network, rest)) + 1])
    elif kind == "all-but":
        frozen_set = set(names) - _names_within(network, rest)
    elif kind == "bn-only" and not rest:
        frozen_set = set(names) - _norms_in(network) - _of(*_head(network))
    else:
        frozen_set = _globbed(names, text)
    if frozen_set == set(names):
        raise UserError(f"freeze={text!r} freezes every weight, so nothing would learn; leave some free.")
    if not frozen_set and kind != "none":
        raise UserError(f"freeze={text!r} freezes no weight; write freeze=none, or name another layer.")
    return frozen_set


def ever_free(network: nn.Module, text: str, epochs: int) -> dict[str, nn.Parameter]:
    """The parameters that learn in at least one epoch, by name; `text` as in `frozen_names`.

    Raises:
        UserError: it freezes nothing by mistake, or everything, or it changes after the last epoch.
    """
    first_epochs = [epoch for epoch, _ in phases(text)]
    always = set.intersection(*(frozen_names(network, text, epoch) for epoch in first_epochs))
    if first_epochs[-1] >= epochs:
        raise UserError(
            f"freeze={text!r} changes at epoch {first_epochs[-1]}, but there are {epochs} epochs, counted from 0; give "
            "more epochs, or let it change earlier."
        )
    free = {name: weight for name, weight in network.named_parameters() if weight.requires_grad and name not in always}
    if not free:
        raise UserError("Every weight that freeze leaves free has requires_grad=False; set it to True for some.")
    return free


def phases(text: str) -> list[tuple[int, str]]:
    """The epochs at which the freezing changes, each with its rule; a single one for a text without epochs.

    Raises:
        UserError: the first epoch is not 0, or the epochs do not increase.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) < 2 and not re.match(r"\d+:", text.strip()):
        return [(0, text.strip())]
    rules = []
    for part in parts:
        match = re.fullmatch(r"(\d+):(.+)", part)
        if match is None:
            raise UserError(f"In freeze={text!r}, {part!r} has no epoch before it; write 0:all-but:fc;2:none.")
        rules.append((int(match[1]), match[2].strip()))
    epochs = [epoch for epoch, _ in rules]
    if epochs[0] != 0 or sorted(set(epochs)) != epochs:
        raise UserError(f"The epochs in freeze={text!r} must begin with 0 and increase; they are {epochs}.")
    return rules


def layers_with_frozen_statistics(network: nn.Module, names: set[str], bn: str) -> list[nn.Module]:
    """Modules whose running statistics are frozen under a choice of `bn`.

    The statistics of a frozen layer are always frozen: if they changed, so would the layer's output. A norm without
    weights counts as frozen if the network begins with frozen weights and none that learns is defined before it.

    Args:
        network: all of it.
        names: of its frozen parameters; those with requires_grad=False count as frozen too.
        bn: "frozen", all BatchNorm; "frozen-prefix", also BatchNorm before the last frozen weight, even if its own
            weights learn; otherwise only that of frozen layers.
    """
    names = names | {name for name, weight in network.named_parameters() if not weight.requires_grad}
    layers = frozen_layers(network, names)
    if bn == "frozen":
        layers += norms_of(network)
    elif bn == "frozen-prefix" and names:
        last = _last([name for name, _ in network.named_parameters()], names)
        layers += [norm for norm, place in _placed_norms(network) if isinstance(norm, NORMS) and place <= last]
    return layers


def frozen_layers(network: nn.Module, names: set[str]) -> list[nn.Module]:
    """Modules with weights, all of them frozen, and norms without weights among the frozen ones at the beginning."""
    fixed = {weight for name, weight in network.named_parameters() if name in names}
    layers = [each for each in network.modules() if _has_weights(each) and fixed.issuperset(each.parameters())]
    prefix = len([*takewhile(fixed.__contains__, network.parameters())])
    if prefix:
        layers += [norm for norm, place in _placed_norms(network) if not _has_weights(norm) and place <= prefix]
    return layers


def _placed_norms(network: nn.Module) -> Iterator[tuple[nn.Module, int]]:
    """Each norm with the number of weights that are defined before it."""
    before: set[nn.Parameter] = set()  # no list: a weight that two layers share counts once
    for module in network.modules():
        if tracks_statistics(module):
            yield module, len(before)
        before.update(module.parameters(recurse=False))


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


@contextmanager
def frozen(network: nn.Module, names: set[str]) -> Iterator[None]:
    """These parameters have no gradient while the context lasts.

    Parameters that the caller has frozen with `requires_grad` stay frozen.
    """
    before = {name: weight.requires_grad for name, weight in network.named_parameters()}
    for name, weight in network.named_parameters():
        weight.requires_grad_(before[name] and name not in names)
        if not weight.requires_grad:
            # With any gradient, even of zeros, momentum and weight decay would still change the weight.
            weight.grad = None
    try:
        yield
    finally:
        for name, weight in network.named_parameters():
            weight.requires_grad_(before[name])


def chosen(names: list[str], globs: str) -> set[str]:
    """The names that match one of several comma-separated globs, or that lie in a layer that matches.

    Raises:
        UserError: a glob matches none.
    """
    result: set[str] = set()
    for glob in filter(None, (part.strip() for part in globs.split(","))):
        matched = {name for name in names if any(fnmatchcase(part, glob) for part in _parents(name))}
        if not matched:
            raise unknown("parameter or layer", glob, names)
        result |= matched
    return result


def _globbed(names: list[str], text: str) -> set[str]:
    try:
        if not text:
            raise UserError("It is empty.")
        return chosen(names, text)
    except UserError as error:
        raise UserError(f"freeze={text!r}: {error} Possible values are {', '.join(_SYNTAX)}.") from None


def _parents(name: str) -> list[str]:
    """The name itself and the layers that contain it, as whole words: "layer1" does not match "layer10"."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def _names_within(network: nn.Module, layer: str) -> set[str]:
    modules = dict(network.named_modules())
    if layer not in modules or not layer:
        raise unknown("layer", layer, [name for name in modules if name])
    own = _of(layer, modules[layer])
    if not own:
        raise UserError(f"The layer {layer!r} has no weights; name one that has.")
    return own


def _last(names: list[str], among: set[str]) -> int:
    return max(place for place, name in enumerate(names) if name in among)


def _norms_in(network: nn.Module) -> set[str]:
    names = {name for layer, module in network.named_modules() if isinstance(module, NORMS)
             for name in _of(layer, module)}  # fmt: skip
    if not names:
        raise UserError("freeze=bn-only leaves BatchNorm free, but the network has none; give another freeze.")
    return names


def _of(layer: str, module: nn.Module) -> set[str]:
    return {f"{layer}.{name}" if layer else name for name, _ in module.named_parameters()}


def _head(network: nn.Module) -> tuple[str, nn.Module]:
    """The last layer with weights of its own."""
    return [(name, module) for name, module in network.named_modules() if any(True for _ in module.parameters(False))][
        -1
    ]
