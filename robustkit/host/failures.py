"""Whose code failed: an exception's traceback says whether it was the user's, the model's layers, or ours.

A model, an attack, a surrogate gradient or a data set of the user may raise anything, at any time, `SystemExit` too.
Rather than a handler at each call there is one around each command, which asks this module. In Python the user's own
exception reaches the user as it is.
"""

import os
import sysconfig
from types import FrameType
from typing import Literal, NamedTuple

from robustkit.errors import UserError

_LIBRARIES = (sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_NO_FILE = ("<frozen ", "<string>", "<eval_with_key>", "<__array_function__")


_OTHERS: set[str] = set()  # installed packages whose attacks were loaded


def blame(package: str) -> None:
    """Let an installed package answer for what fails in it, as code of the user does; libraries do not."""
    _OTHERS.add(package)


class CodePlace(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str


def as_users_error(error: BaseException) -> UserError | None:
    """The error as a sentence for the user whose code or machine caused it; None if we did."""
    error = _original(error)
    if isinstance(error, UserError):
        return error
    if _is_out_of_memory(error):
        return UserError(
            f"There is not enough memory ({described_error(error)}); take a smaller --batch-size, smaller images or a "
            "smaller model."
        )
    blamed = _blamed(error)
    if isinstance(blamed, CodePlace):
        return UserError(
            f"The code of {blamed.file} failed in line {blamed.line} ({blamed.function}): {_kind_and_text(error)}."
        )
    if blamed == "model":
        return UserError(f"The model failed on its input: {_kind_and_text(error)}; try it on one image by hand.")
    return None


def described_error(error: BaseException) -> str:
    """The kind and the text of an error without a full stop, and the line of the user's code that raised it."""
    place = _blamed(error)
    where = f" ({os.path.basename(place.file)}:{place.line})" if isinstance(place, CodePlace) else ""
    return _kind_and_text(error) + where


def is_from_library(error: BaseException) -> bool:
    """Whether a library such as torch raised an error about its input, or no code of the user took part.

    Other kinds of errors, such as a missing key, are about the code that called the library.
    """
    frames = _frames(error)
    about_input = isinstance(error, (RuntimeError, ValueError, AssertionError))
    raised = about_input and bool(frames) and _owner(frames[0][0]) == "library"
    return raised or not isinstance(_blamed(error), CodePlace)


def _kind_and_text(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except Exception:  # an error of the user's own class may fail here too
        text = ""
    return f"{kind}: {text}" if text else kind


def _original(error: BaseException) -> BaseException:
    # Python replaces a StopIteration that leaves a generator.
    return error.__cause__ if isinstance(error.__cause__, (StopIteration, StopAsyncIteration)) else error


def _is_out_of_memory(error: BaseException) -> bool:
    if type(error) is MemoryError:
        return not isinstance(_blamed(error), CodePlace)
    text = str(error) if isinstance(error, RuntimeError) else ""
    return type(error).__name__ == "OutOfMemoryError" or "allocate memory" in text or "not enough memory" in text


def _blamed(error: BaseException) -> CodePlace | Literal["model"] | None:
    """Who called what failed: the innermost frame that belongs to no library decides.

    Where that is ours, and code of the user that we called has called it, such as an attack's `step` a projection, what
    failed is most likely what it was given.
    """
    in_model = False
    frames = _frames(error)
    for number, (frame, line) in enumerate(frames):
        owner = _owner(frame)
        if owner == "user":
            return _place(frame, line)
        if owner == "library":
            in_model = in_model or _calls_a_module(frame)
        elif not _hands_on(frame):
            return "model" if in_model else _called_back(frames[number:])
    return "model" if in_model else None


def _called_back(frames: list[tuple[FrameType, int]]) -> CodePlace | None:
    """The innermost line of the user's code that frames of ours called; None if there is none."""
    places: list[CodePlace] = []
    for frame, line in frames:
        owner = _owner(frame)
        if owner == "user":
            places.append(_place(frame, line))
        elif owner == "robustkit" and places:
            return places[0]
    return None


def _place(frame: FrameType, line: int) -> CodePlace:
    return CodePlace(frame.f_code.co_filename, line, frame.f_code.co_name)


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames that an error passed with their lines, the innermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return frames[::-1]


def _owner(frame: FrameType) -> Literal["user", "library", "robustkit"]:
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    if module == "robustkit" or module.startswith("robustkit."):
        return "robustkit"
    if module.partition(".")[0] in _OTHERS:
        return "user"
    if file.startswith(_NO_FILE) or any(part in file for part in _INSTALLED) or file.startswith(_LIBRARIES):
        return "library"
    return "user"


def _calls_a_module(frame: FrameType) -> bool:
    """Whether this frame of torch runs a module's forward or a backward pass."""
    module = str(frame.f_globals.get("__name__", ""))
    return module in ("torch.nn.modules.module", "torch.autograd", "torch.autograd.graph", "torch._tensor")


def _hands_on(frame: FrameType) -> bool:
    """Whether this frame of ours only hands a call on to the user's layers: hooks, and modules around a network."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("robustkit.nethook.") or frame.f_code.co_name == "forward"
