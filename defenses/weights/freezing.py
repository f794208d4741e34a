"""Which weights stay as they are, by a short text; and freezing that holds through `.train()` and an optimizer."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import nn

from robustkit.errors import UserError, unknown

from .batchnorm import NORMS

_WAYS = ("none", "prefix:LAYER", "all-but:LAYER", "bn-only")


def frozen_names(network: nn.Module, text: str, epoch: int = 0) -> set[str]:
    """Names of the parameters that `text` freezes.

    Args:
        network: whose parameters.
        text: "none"; "prefix:LAYER", all up to and including that layer, in order of definition; "all-but:LAYER";
            "bn-only", all but BatchNorm's and the last layer's; or globs of parameters or layers with commas between
            them. Gradual unfreezing is several of these, each behind the epoch from which it holds:
            "0:all-but:fc;2:prefix:layer2;4:none".
        epoch: for gradual unfreezing, from 0.

    Raises:
        UserError: it names nothing, or everything.
    """
    text = [way for first, way in phases(text) if first <= epoch][-1]
    names = [name for name, _ in network.named_parameters()]
    kind, _, rest = text.partition(":")
    if kind == "none" and not rest:
        found: set[str] = set()
    elif kind == "prefix":
        found = set(names[: _last(names, _within(network, rest)) + 1])
    elif kind == "all-but":
        found = set(names) - _within(network, rest)
    elif kind == "bn-only" and not rest:
        found = set(names) - _norms_in(network) - _of(*_head(network))
    else:
        found = _globbed(names, text)
    if found == set(names):
        raise UserError(f"freeze={text!r} freezes every weight, so nothing could be learnt; leave some free.")
    return found


def ever_free(network: nn.Module, text: str, epochs: int) -> dict[str, nn.Parameter]:
    """The parameters that learn in some of so many epochs, by name; `text` as in `frozen_names`.

    Raises:
        UserError: it names nothing, or everything, or begins after the last epoch.
    """
    begins = [epoch for epoch, _ in phases(text)]
    always = set.intersection(*(frozen_names(network, text, epoch) for epoch in begins))
    if begins[-1] >= epochs:
        raise UserError(
            f"freeze={text!r} changes at epoch {begins[-1]}, but there are {epochs} epochs, counted from 0; give more "
            "epochs or earlier changes."
        )
    free = {name: weight for name, weight in network.named_parameters() if weight.requires_grad and name not in always}
    if not free:
        raise UserError("All weights that freeze leaves free have requires_grad=False; set it on some.")
    return free


def phases(text: str) -> list[tuple[int, str]]:
    """The epochs at which the freezing changes, and what holds from each on: one for a text without epochs.

    Raises:
        UserError: the first epoch is not 0, or they do not rise.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) < 2 and not re.match(r"\d+:", text.strip()):
        return [(0, text.strip())]
    found = []
    for part in parts:
        match = re.fullmatch(r"(\d+):(.+)", part)
        if match is None:
            raise UserError(f"In freeze={text!r}, {part!r} has no epoch before it; write 0:all-but:fc;2:none.")
        found.append((int(match[1]), match[2].strip()))
    epochs = [epoch for epoch, _ in found]
    if epochs[0] != 0 or sorted(set(epochs)) != epochs:
        raise UserError(f"The epochs in freeze={text!r} must begin with 0 and rise; they are {epochs}.")
    return found


def still_layers(network: nn.Module, names: set[str], bn: str) -> list[nn.Module]:
    """Modules whose BatchNorm statistics stand still under a choice of `bn`.

    A layer that is frozen stands still whatever the choice: statistics that move would change what it computes.

    Args:
        network: the whole.
        names: of its frozen parameters; those that require no gradient are frozen, too.
        bn: "frozen", all of it; "frozen-prefix", also BatchNorm before the last frozen weight, though its own weights
            learn; else what is frozen alone.
    """
    if bn == "frozen":
        return [network]
    names = names | {name for name, weight in network.named_parameters() if not weight.requires_grad}
    layers = frozen_layers(network, names)
    if bn == "frozen-prefix" and names:
        order = [name for name, _ in network.named_parameters()]
        last = _last(order, names)
        layers += [
            norm
            for layer, norm in network.named_modules()
            if isinstance(norm, NORMS) and any(name in order[:last] for name in _of(layer, norm))
        ]
    return layers


def frozen_layers(network: nn.Module, names: set[str]) -> list[nn.Module]:
    """Modules that have weights and whose weights are all frozen."""
    layers = []
    for layer, module in network.named_modules():
        own = _of(layer, module)
        if own and own <= names:
            layers.append(module)
    return layers


@contextmanager
def frozen(network: nn.Module, names: set[str]) -> Iterator[None]:
    """Keep these parameters out of all gradients while the context lasts.

    What the caller has frozen by `requires_grad` stays frozen too.
    """
    before = {name: weight.requires_grad for name, weight in network.named_parameters()}
    for name, weight in network.named_parameters():
        weight.requires_grad_(before[name] and name not in names)
        if not weight.requires_grad:
            # A gradient left behind, even of zeros, lets momentum and weight decay move the weight.
            weight.grad = None
    try:
        yield
    finally:
        for name, weight in network.named_parameters():
            weight.requires_grad_(before[name])


def chosen(names: list[str], globs: str) -> set[str]:
    """Names that one of several globs with commas between them matches, or whose layer it matches.

    Raises:
        UserError: a glob matches none.
    """
    found: set[str] = set()
    for glob in filter(None, (part.strip() for part in globs.split(","))):
        matched = {name for name in names if any(fnmatchcase(part, glob) for part in _parents(name))}
        if not matched:
            raise unknown("parameter or layer", glob, names)
        found |= matched
    return found


def _globbed(names: list[str], text: str) -> set[str]:
    try:
        if not text:
            raise UserError("It names nothing.")
        return chosen(names, text)
    except UserError as error:
        raise UserError(f"freeze={text!r}: {error} Other ways of freezing are {', '.join(_WAYS)}.") from None


def _parents(name: str) -> list[str]:
    """The name itself and the layers it lies in: whole words, so that "layer1" is not "layer10"."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def _within(network: nn.Module, layer: str) -> set[str]:
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
    found = {name for layer, module in network.named_modules() if isinstance(module, NORMS)
             for name in _of(layer, module)}  # fmt: skip
    if not found:
        raise UserError("freeze=bn-only leaves BatchNorm free, but the network has none; choose another way.")
    return found


def _of(layer: str, module: nn.Module) -> set[str]:
    return {f"{layer}.{name}" if layer else name for name, _ in module.named_parameters()}


def _head(network: nn.Module) -> tuple[str, nn.Module]:
    """The last layer with weights of its own."""
    return [(name, module) for name, module in network.named_modules() if any(True for _ in module.parameters(False))][
        -1
    ]
