"""A context that replaces modules of a network."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from robustkit.errors import UserError
from robustkit.nethook.names import get_module, unwrap


@contextmanager
def replaced(model: nn.Module, modules: Mapping[str, nn.Module]) -> Iterator[nn.Module]:
    """Replace modules inside the context; afterwards the model has the original objects again.

    Args:
        model: the network.
        modules: by dotted name; they keep their own train or eval mode. Of a tied module only the given name changes.

    Raises:
        LayerNotFoundError: there is no such name; then nothing is replaced.
    """
    root = unwrap(model)
    for name in modules:
        if name == "":
            raise UserError("The model itself cannot be replaced inside itself; call the other module instead.")
        if any(name.startswith(f"{other}.") for other in modules):
            raise UserError(f"Layer {name!r} lies inside another one that is replaced; replace only the outer one.")
    originals = {name: get_module(root, name) for name in modules}
    try:
        for name, module in modules.items():
            _put(root, name, module)
        yield model
    finally:
        for name, module in originals.items():
            _put(root, name, module)


def _put(root: nn.Module, name: str, module: nn.Module) -> None:
    path, _, last = name.rpartition(".")
    # Not setattr: members of a Sequential are no attributes, and a class may override __setattr__.
    root.get_submodule(path)._modules[last] = module
