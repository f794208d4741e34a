"""What commands print: safe text, on streams that may be closed or full, or have any encoding."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from robustkit.host.streams import drop_output
from robustkit.host.text import one_line, printable_lines


def echo(text: str, *, err: bool = False) -> None:
    """Print lines; control characters in them are replaced, and a reader who has left is no error."""
    try:
        click.echo(printable_lines(text), err=err)
    except BrokenPipeError:
        drop_output(sys.stderr if err else sys.stdout)


def print_error(message: str) -> None:
    """Print an error as one line on standard error."""
    with suppress(OSError):
        echo(f"Error: {one_line(message)}", err=True)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Streams that can print every character, and warnings in one line, while the context lasts."""
    before = [(stream, stream.errors) for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning  # type: ignore[assignment]
        for stream, _ in before:
            with suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")
        try:
            yield
        finally:
            for stream, errors in before:
                with suppress(OSError, ValueError):
                    stream.reconfigure(errors=errors)


def _print_warning(message: Warning | str, *_: Any) -> None:
    with suppress(OSError):
        echo(f"Warning: {one_line(str(message))}", err=True)
