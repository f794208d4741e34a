"""The arguments in `path/file.py:function(width=8)`: literals only, read without running any code."""

import ast
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.limits import shortened
from robustkit.primitives.user_code import Address, function_in, import_file, is_object

_LETTERS = 4096  # of a call; Python's parser needs memory and stack for deep brackets


class UserCall(NamedTuple):
    """A name in a file of the user, and the literals that it is called with; None if there are no brackets."""

    where: Address
    args: tuple[object, ...]
    kwargs: Mapping[str, object] | None


class Returned(NamedTuple):
    """What a name of a file stands for, or what its call returned, and the SHA-256 of the file and its neighbours."""

    value: object
    code: str
    origin: str  # "function()", or the name of an object that stands in the file
    given: frozenset[str] = frozenset()  # the names of the usual arguments that it got


def user_call(where: Address) -> UserCall:
    """The call of an address whose name may have arguments.

    Raises:
        UserError: the arguments are no literals; the sentence names the first that is none.
    """
    if "(" not in where.function:
        return UserCall(where, (), None)
    call = _call(where)
    args = tuple(_literal(each, where) for each in call.args)
    kwargs = {str(each.arg): _literal(each.value, where) for each in call.keywords}
    return UserCall(where._replace(function=where.function.partition("(")[0]), args, kwargs)


def returned_by(where: Address, instances: type | tuple[type, ...], **usual: object) -> Returned:
    """What an address names: an object of the classes `instances` as it is, else what the call of a function returns.

    Args:
        where: the file, the name and perhaps the arguments.
        instances: objects of these classes are used as they are; classes and functions are called.
        usual: arguments that a function gets if it has such parameters and the user gives no others.

    Raises:
        UserError: the file or the name is missing, or the call fails.
    """
    call = user_call(where)
    module, code = import_file(call.where.file)
    name, given = call.where.function, call.kwargs or {}
    value = getattr(module, name, None)
    if is_object(value, instances):
        if call.kwargs is not None:
            raise UserError(f"{name} in {where.file} is an object and no function; leave out its brackets.")
        return Returned(value, code, name)
    function = function_in(module, call.where, instances)
    more = {key: value for key, value in usual.items() if key not in given and _accepts(function, key, call)}
    try:
        return Returned(function(*call.args, **given, **more), code, f"{name}()", frozenset(more))
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit
        raise UserError(f"{name}() in {where.file} failed: {described_error(error)}.") from error


def _call(where: Address) -> ast.Call:
    example = "write for example make(width=8)"
    if len(where.function) > _LETTERS:
        raise UserError(f"The call {shortened(where.function)} has more than {_LETTERS:,} letters; shorten it.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, about backslashes in texts
            call = ast.parse(where.function, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UserError(f"{shortened(where.function)} is not a call in Python; {example}.") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise UserError(f"{shortened(where.function)} is not one call; {example}.")
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        raise UserError(f"{shortened(where.function)} has arguments with a star; name each one: {example}.")
    return call


def _literal(value: ast.expr, where: Address) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise UserError(
            f"In {shortened(where.function)}, {shortened(ast.unparse(value))} is not a literal; arguments are numbers, "
            "quoted texts, True, False, None, and lists, tuples and dicts of those."
        ) from None


def _accepts(function: Callable[..., object], parameter: str, call: UserCall) -> bool:
    """Whether a function has a parameter that the arguments in order do not fill."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # some builtins have no signature
        return False
    return parameter in names[len(call.args) :]
