"""A model of the user: `path/file.py:NAME`, a module that takes pixels or a function that returns one."""

import inspect
from typing import NamedTuple

from torch import nn

from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.primitives.user_code import Address, load_function


class Built(NamedTuple):
    """The module, and the SHA-256 of its file and of the neighbours that the file imports."""

    network: nn.Module
    code: str
    origin: str  # "function()", or the name of a module that stands in the file


def build(where: Address, num_classes: int | None) -> Built:
    """The module at an address, or the one that a function there returns.

    A function gets `num_classes` if it has such a parameter.

    Raises:
        UserError: the file or function is missing, fails, or returns something else.
    """
    function, code = load_function(where)
    if isinstance(function, nn.Module):
        return Built(function, code, where.function)
    extra = {"num_classes": num_classes} if num_classes is not None and _accepts(function, "num_classes") else {}
    try:
        network = function(**extra)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit
        raise UserError(f"{where.function}() in {where.file} failed: {described_error(error)}.") from error
    if not isinstance(network, nn.Module):
        raise UserError(
            f"{where.function}() in {where.file} must return a torch.nn.Module, not {type(network).__name__}."
        )
    return Built(network, code, f"{where.function}()")


def _accepts(function: object, parameter: str) -> bool:
    assert callable(function)
    try:
        return parameter in inspect.signature(function).parameters
    except ValueError:  # some builtins have no signature
        return False
