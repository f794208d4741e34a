"""Text that others wrote, made safe: for a terminal, for one line of an error message, and for a cell of a CSV file."""

import re
from typing import Final

LONGEST: Final = 1500  # characters of an error message; the middle of a longer one is left out

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of a formula
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def printable(text: str) -> str:
    """`text` without control characters: a name must not move the cursor, change the direction of text or end a line.

    Replaced are all that Unicode calls control, format, surrogate, private, unassigned or a line separator.
    """
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def printable_lines(text: str) -> str:
    """The same for several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _unbroken(text: str) -> str:
    return printable(" ".join(text.split()))


def one_line(text: str) -> str:
    """`text` as one printable line of at most `LONGEST` characters."""
    line = _unbroken(text)
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[:half]} ... {line[-half:]}"


def csv_cell(value: object) -> object:
    """The value of a cell; a text that a spreadsheet would run as a formula gets an apostrophe before it.

    Numbers stay as they are, also those that are written as text. Source: OWASP, "CSV Injection".
    """
    if isinstance(value, str) and len(value) > 1 and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def csv_text_of(cell: str) -> str:
    """The text for which `csv_cell` wrote `cell`."""
    text = cell.removeprefix("'")
    return text if csv_cell(text) == cell else cell


def as_name(text: str) -> str:
    """`text` as reports show it: on one line, with plain blanks. Names that differ in nothing else become one."""
    return _unbroken(encodable(text))


def encodable(text: str) -> str:
    """`text` as UTF-8 can store it: bytes of file names that are no UTF-8 become backslashes and numbers."""
    return encoded(text).decode()


def encoded(text: str) -> bytes:
    """`text` in UTF-8, as `encodable` says."""
    return text.encode("utf-8", "backslashreplace")
