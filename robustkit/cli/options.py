"""Options that several commands share, and what they mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from robustkit.errors import UserError

Command = Callable[..., Any]


class NumberList(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
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


def model_options(command: Command) -> Command:
    """Weights and normalisation of models given by name."""
    return _with(
        command,
        click.option("--num-classes", type=click.IntRange(min=1), help="Classes of the checkpoint."),
        click.option("--mean", type=NumberList(), help="Normalisation to apply inside the model."),
        click.option("--std", type=NumberList(), help="The same, divided by."),
        click.option("--train", is_flag=True, help="Train a model that has no weights here once."),
        click.option("--retrain", is_flag=True, help="Train again, whatever is cached."),
    )


def data_options(command: Command) -> Command:
    """The data set."""
    return _with(
        command,
        click.option("-d", "--dataset", default="digits", show_default=True, metavar="NAME|PATH",
                     help="See `robustkit list datasets`; or a folder of pictures, .npz or .safetensors file."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the files of published data are."),
        click.option("--download", is_flag=True, help="Fetch them there first."),
        click.option("--split", default="test", show_default=True),
        click.option("--image-size", type=click.IntRange(min=1), help="Resize and crop a folder's pictures to this."),
    )  # fmt: skip


def remedy_options(command: Command) -> Command:
    """How models are asked whose own gradients mislead."""
    return _with(
        command,
        click.option("--bpda", "bpda", multiple=True, metavar="LAYER[=SURROGATE]",
                     help="Take a layer's gradient from identity, relu, sigmoid, tanh or file.py:function; "
                          "see `robustkit diagnose`. Repeatable."),
        click.option("--eot", type=click.IntRange(min=1), metavar="K",
                     help="Draws of a randomized or smoothed model averaged per query. [default: 20]"),
        click.option("--probabilities", is_flag=True, help="The models return probabilities, not logits."),
    )  # fmt: skip


def smoothing_options(command: Command) -> Command:
    """Randomized smoothing, whose certificates stand beside the attacks."""
    return _with(
        command,
        click.option("--smooth", type=float, metavar="SIGMA",
                     help="Attack and certify the class said most often under Gaussian noise, pixels in [0, 1]."),
        click.option("--smooth-draws", type=click.IntRange(min=1), metavar="N",
                     help="Noisy copies of an image for its certificate. [default: 10000]"),
        click.option("--smooth-alpha", type=float, metavar="A",
                     help="Chance at most that a certificate is wrong. [default: 0.001]"),
    )  # fmt: skip


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def data_of(options: dict[str, Any]) -> Any:
    """The data set that the options name."""
    from robustkit.data import load_dataset

    return load_dataset(
        options["dataset"], options["split"], data_dir=options["data_dir"], download=options["download"],
        image_size=options["image_size"],
    )  # fmt: skip


def require_model(options: dict[str, Any]) -> None:
    """Refuse a command without a model.

    Raises:
        UserError: none is named.
    """
    if not options["model"]:
        raise UserError("No model is given; add --model NAME, for example --model resnet18.")
