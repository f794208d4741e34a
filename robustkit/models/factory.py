"""A model of the user: `path/file.py:NAME`, a module that takes pixels, its class, or a function that returns one."""

from typing import NamedTuple

from torch import nn

from robustkit.errors import UserError
from robustkit.primitives.user_call import returned_by
from robustkit.primitives.user_code import Address


class Built(NamedTuple):
    """The module, and the SHA-256 of its file and of the neighbours that the file imports."""

    network: nn.Module
    code: str
    origin: str  # "function()", or the name of a module that stands in the file
    adapts: bool  # whether it gets the number of classes, if there is one


def build(where: Address, num_classes: int | None) -> Built:
    """The module at an address, or the one that a class or a function there returns.

    A function gets `num_classes` if it has such a parameter and the address does not give it.

    Raises:
        UserError: the file or function is missing, fails, or returns something else.
    """
    usual = {} if num_classes is None else {"num_classes": num_classes}
    network, code, origin, given = returned_by(where, nn.Module, **usual)
    if not isinstance(network, nn.Module):
        raise UserError(f"{origin} in {where.file} must return a torch.nn.Module, not {type(network).__name__}.")
    return Built(network, code, origin, adapts=given == usual.keys())
