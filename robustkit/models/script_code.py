"""The code of a TorchScript file, checked before torch reads it: it computes, and touches no file and no network.

TorchScript is a small language without Python's objects, but two of its operators write files, and libraries such as
torchvision add more. What is not checked is how long it runs.
"""

import re

from robustkit.errors import UserError
from robustkit.limits import shortened

# Operators of torch that read or write files, print, call other machines, or call Python. As words, because a method
# call and getattr reach an operator too; a network with a layer of such a name is refused with them.
_FORBIDDEN = re.compile(
    r"(?<!\w)(save|from_file|read_file|write_file|rpc_async|rpc_sync|rpc_remote|_?print|PythonOp|IgnoredPythonOp)(?!\w)"
)
_LIBRARIES = ("aten", "prim", "torchvision", "quantized")
_OF_LIBRARY = re.compile(r"(?<![\w.])ops(?!\w)(?:\s*\.\s*(\w+))?")
_CLASSES = re.compile(r"torch\s*\.\s*classes(?!\w)")
_ESCAPED = re.compile(r"(?<!\w)getattr(?!\w)[^\n]*\\")


def check_script_classes(pickle: bytes, place: str) -> None:
    """Refuse objects of C++ in a file.

    Raises:
        UserError: there are some.
    """
    if _CLASSES.search(pickle.decode("latin-1")):
        raise _refused("torch.classes", place)


def check_script_code(code: str, place: str) -> None:
    r"""Refuse code that names an operator on files, or one of a library that is not known.

    Args:
        code: of one module, as `torch.jit.save` writes it.
        place: names the file in errors.

    Raises:
        UserError: it does.
    """
    forbidden = _FORBIDDEN.search(code)
    other = next((each for each in _OF_LIBRARY.finditer(code) if each[1] not in _LIBRARIES), None)
    found = (
        forbidden[1] if forbidden
        else f"ops.{other[1]}" if other and other[1]
        else "ops" if other
        else "torch.classes" if _CLASSES.search(code)
        else "getattr with a backslash" if _ESCAPED.search(code)
        else None
    )  # fmt: skip
    if found is not None:
        raise _refused(found, place)


def _refused(name: str, place: str) -> UserError:
    return UserError(
        f"The code in {place} names {shortened(name)}, which may read or write files or run code; build the network "
        "in Python: --model FILE.py:NAME --weights FILE."
    )
