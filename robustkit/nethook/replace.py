"""Modules of a network replaced for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from robustkit.errors import UserError
from robustkit.nethook.names import get_module, unwrap


@contextmanager
def replaced(model: nn.Module, modules: Mapping[str, nn.Module]) -> Iterator[nn.Module]:
    """The model with other modules at some names while the context lasts; then the old objects are back.

    Args:
        model: the network.
        modules: by dotted name; they bring their own train or eval mode. Of a tied module only the given name changes.

    Raises:
        LayerNotFoundError: there is no such name; nothing is replaced then.
    """
    root = unwrap(model)
    for name in modules:
        if name == "":
            raise UserError("The model itself cannot be replaced inside itself; call the other module instead.")
        if any(name.startswith(f"{other}.") for other in modules):
            raise UserError(f"Layer {name!r} lies inside another one that is replaced; replace only the outer one.")
    old = {name: get_module(root, name) for name in modules}
    try:
        for name, module in modules.items():
            _put(root, name, module)
        yield model
    finally:
        for name, module in old.items():
            _put(root, name, module)


def _put(root: nn.Module, name: str, module: nn.Module) -> None:
    path, _, last = name.rpartition(".")
    # Not setattr: a Sequential's members have no attribute, and a class may guard its own.
    root.get_submodule(path)._modules[last] = module
