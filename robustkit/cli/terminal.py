"""What commands print: safe text, on streams that may be closed or full, or have any encoding."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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


def print_report_path(file: Path, text: str, more: str = "") -> None:
    """Print where a report is; in a terminal the text is a link to the file (OSC 8), elsewhere it is plain.

    Args:
        file: the report.
        text: how it is named.
        more: what follows on the same line.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        echo(f"\n{text}{more}")
        return
    from rich.style import Style
    from rich.text import Text

    from robustkit.host.console import SafeConsole

    # as_uri() writes every control character of the path as a number.
    link = Style(link=file.resolve().as_uri())
    SafeConsole(soft_wrap=True).print(Text.assemble("\n", (printable_lines(text), link), more))


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
