"""Types of option values that click does not have."""

import re
from typing import Any

import click

_DIGITS = 18  # more are no number of images
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class NumberList(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Numbers with commas between them, one per channel."""

    name = "A,B,C"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list of floats."""
        try:
            return value if isinstance(value, list) else [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers; write for example 0.485,0.456,0.406.", param, ctx)


class CountOr(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 1, or one word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.name = f"N|{word}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the word."""
        text = str(value).strip().lower()
        if text == self.word:
            return self.word
        if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
            self.fail(f"{value!r} is neither a whole number of at least 1 nor {self.word!r}.", param, ctx)
        return int(text)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time such as 90s, 10m or 1.5h."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds."""
        match = re.fullmatch(r"(\d+\.?\d*)\s*([smh])", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no time; write for example 90s, 10m or 2h.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]
