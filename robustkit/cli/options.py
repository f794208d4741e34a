"""What the options of several commands mean."""

from typing import Any

import click


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Numbers with commas between them, one per channel."""

    name = "A,B,C"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list of floats."""
        try:
            return value if isinstance(value, list) else [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of numbers; write for example 0.485,0.456,0.406.", param, ctx)


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
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{value!r} is neither a whole number of at least 1 nor {self.word!r}.", param, ctx)
        return int(text)


def data_of(options: dict[str, Any]) -> Any:
    """The data set that the options name."""
    from robustkit.data import load_dataset

    return load_dataset(
        options["dataset"], options["split"], data_dir=options["data_dir"], download=options["download"],
        image_size=options["image_size"],
    )  # fmt: skip
