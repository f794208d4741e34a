"""Types of option values that click does not have."""

import re
from pathlib import Path
from typing import Any

import click

from robustkit.limits import shown

_DIGITS = 18  # of a count: more do not fit into 64 bits, and Python reads at most 4,300
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class NumberList(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Numbers with commas between them, one per channel."""

    name = "A,B,C"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list of floats."""
        try:
            return value if isinstance(value, list) else [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{shown(value)} is not a list of numbers; write for example 0.485,0.456,0.406.", param, ctx)


class OutPath(click.Path):
    """A path to write to. An empty one, as of a variable that is not set, would be the current folder."""

    def __init__(self, *, readable: bool = True) -> None:
        super().__init__(path_type=Path, readable=readable)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail(
                "the path is empty; name a file or folder (. is the current one), or leave the option out.", param, ctx
            )
        return super().convert(value, param, ctx)


class RunPath(OutPath):
    """A run folder to read, which is not empty either; whether it can be read shows when its evidence is opened."""

    def __init__(self) -> None:
        super().__init__(readable=False)


class CountOr(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 1, or one of some words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(("N", *words))

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The words as they are typed; click would write them in capitals."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the word."""
        text = str(value).strip().lower()
        if text in self.words:
            return text
        if not text.isdecimal() or not text.isascii() or len(text) > _DIGITS or int(text) < 1:
            words = " nor ".join(map(repr, self.words))
            self.fail(f"{shown(value)} is neither a whole number of at least 1 nor {words}.", param, ctx)
        return int(text)


class OpenShare(click.ParamType):  # type: ignore[type-arg]
    """A number between two others, both excluded; nan, which click's own type lets through, is none."""

    name = "SHARE"

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            share = float(value)
        except ValueError:
            share = self.low
        if not self.low < share < self.high:
            self.fail(f"{shown(value)} is not a number above {self.low:g} and below {self.high:g}.", param, ctx)
        return share


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time such as 90s, 10m or 1.5h."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds."""
        match = re.fullmatch(r"(\d+\.?\d*)\s*([smh])", str(value).strip().lower())
        if match is None or len(match[1]) > _DIGITS:
            self.fail(f"{shown(value)} is not a duration; write for example 90s, 10m or 2h.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]
