"""`robustkit attack`: adversarial examples of pictures or arrays, as files."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError
from robustkit.host.text import printable

from .option_types import OutPath
from .options import (
    OTHER_RADII,
    RADIUS,
    WEIGHTS,
    batch_size_option,
    config_option,
    device_option,
    gray_option,
    mask_option,
    model_option,
    quiet_option,
    rejects_option,
    remedy_options,
    require_model,
    seed_option,
    server_options,
    threat_options,
    weights_options,
)
from .repeated import OneValueEach
from .requests import remote_of
from .terminal import echo
from .training import classifier_of, model_of, threat_of

if TYPE_CHECKING:
    from torch import Tensor

    from robustkit.adversarial_examples.class_names import ClassNames
    from robustkit.adversarial_examples.known_images import KnownImages
    from robustkit.adversarial_examples.making import AttackChoice
    from robustkit.adversarial_examples.model import Load
    from robustkit.adversarial_examples.picture_run import PictureRun
    from robustkit.data import Dataset
    from robustkit.models import PixelModel

_OUT, _FLOATS = Path("adversarial"), ".safetensors"
_BATCH = 64
_SHOWN = {"lost in rounding": "lost in rounding to 8 bits"}
_BEFORE = ("clean-wrong", "already the target", "abstains")  # outcomes of images that are not attacked


@click.command("attack", cls=OneValueEach)
@click.argument("inputs", nargs=-1, metavar="IMAGE|FOLDER|ARRAYS ...", type=click.Path(path_type=Path))
@config_option
@model_option
@click.option("--weights", metavar="FILE|NAME", help=f"{WEIGHTS}. [default: published]")
@weights_options
@server_options("in this command; without more requests it ends without results")
@click.option("-d", "--dataset", metavar="NAME|PATH", help="Data of the model: gives the image size and the classes.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the files of published data.")
@click.option("--image-size", type=click.IntRange(min=1), help="Resize the short side to this many pixels, and crop.")
@gray_option
@click.option("--label", metavar="CLASS",
              help="True class of all images. [default: from sub-folders or arrays, else the prediction]")  # fmt: skip
@click.option("--target", metavar="CLASS", help="Class that the model should predict. [default: any other]")
@click.option("-a", "--attack", "method", default="pgd", show_default=True, metavar="NAME[:K=V,...]",
              help="See `robustkit list attacks`.")  # fmt: skip
@threat_options(
    "Linf, L2, L1, L0, patch, frame, spatial, rotation, translation, flow, color, recolor or recolor_rgb",
    f"{RADIUS}, {OTHER_RADII}",
)
@mask_option
@remedy_options
@rejects_option
@batch_size_option
@device_option
@seed_option
@click.option("--format", "kind", type=click.Choice(["png", "safetensors"]),
              help="8-bit images, or one file of exact floats. [default: png for image files]")  # fmt: skip
@click.option("--comparisons", type=click.IntRange(min=0), default=20, show_default=True, metavar="N",
              help="Show at most N examples beside their clean images.")  # fmt: skip
@click.option("-o", "--out", type=OutPath(),
              help="Folder of the images, or the .safetensors file. [default: adversarial]")  # fmt: skip
@quiet_option
def attack(**options: Any) -> None:
    """Adversarial examples of image files, verified as they are read back from their files.

    Only successes are written, as NAME.png with NAME.comparison.png; results.csv has all images. An --out that exists
    is refused.
    """
    if not options["inputs"]:
        raise UserError("No image is given; name image files, a folder of them, or a file of arrays.")
    require_model(options)
    try:
        _work(options)
    except KeyboardInterrupt:
        echo("Interrupted. Nothing was written.", err=True)
        sys.exit(130)


def _work(options: dict[str, Any]) -> None:
    from robustkit.adversarial_examples.files import require_new
    from robustkit.adversarial_examples.inputs import is_arrays
    from robustkit.adversarial_examples.known_images import known_images
    from robustkit.paths import user_path

    arrays = is_arrays(options["inputs"])
    out, floats = _output(options, arrays)
    require_new(user_path(out))
    known = known_images(
        options["model"], options["weights"], options["dataset"], options["data_dir"], options["image_size"],
        gray=options["gray"],
    )  # fmt: skip
    (_attack_arrays if arrays else _attack_pictures)({**options, "out": out, "floats": floats}, known)


def _output(options: dict[str, Any], arrays: bool) -> tuple[Path, bool]:
    """Where results go, and whether they are floats."""
    out, kind = options["out"], options["kind"]
    named = out is not None and out.suffix.lower() == _FLOATS
    floats = arrays or named if kind is None else kind == "safetensors"
    if arrays and not floats:
        raise UserError("Arrays are floats, which PNG cannot hold; leave out --format png.")
    if named and not floats:
        raise UserError(f"{out} is the name of a file of floats; leave out --format png, or name a folder.")
    if floats and out is not None and not named:
        raise UserError(f"Arrays are written to one file; give --out {out}{_FLOATS}.")
    return out or (_OUT.with_suffix(_FLOATS) if floats else _OUT), floats


def _attack_pictures(options: dict[str, Any], known: "KnownImages") -> None:
    from robustkit.adversarial_examples.eight_bits import eps_of_levels
    from robustkit.adversarial_examples.files import new_output
    from robustkit.adversarial_examples.inputs import picture_list, require_readable
    from robustkit.adversarial_examples.model import model_and_pictures
    from robustkit.adversarial_examples.picture_run import PictureRun

    found = picture_list(options["inputs"])
    choice = _choice(options, known)
    if not options["floats"]:
        choice = replace(choice, eps=eps_of_levels(choice.norm, choice.eps))
    with new_output(options["out"]) as part:
        with _loader(options, known.weights) as load:
            model, data = model_and_pictures(options["model"], found.files, known, load)
        require_readable(data)
        classes = _classes(known.class_names, model)
        choice = _masked(_aimed(choice, options, classes), options, data, data.shape)
        labels = _labels(options, classes, len(data)) or found.labels(classes)
        if options["floats"]:
            x, _ = data.batch(range(len(data)))
            outcomes = _attack_floats(
                options, model, classes, x, labels, choice, part, [str(file) for file in found.files]
            )
        else:
            part.mkdir()
            comparisons = options["comparisons"]
            run = PictureRun(classifier_of(options, model), data, labels, classes, choice, part, comparisons)
            outcomes = _print_and_store(run, part)
    _print_count(outcomes, labels, data.shape, choice, options["out"])


def _attack_arrays(options: dict[str, Any], known: "KnownImages") -> None:
    from robustkit.adversarial_examples.files import new_output
    from robustkit.adversarial_examples.inputs import array_file
    from robustkit.adversarial_examples.model import model_for_arrays

    data, labelled = array_file(options["inputs"][0])
    choice = _choice(options, known)
    with new_output(options["out"]) as part:
        with _loader(options, options["weights"]) as load:
            model = model_for_arrays(options["model"], data, known, load)
        classes = _classes(known.class_names or data.class_names, model)
        x, y = data.batch(range(len(data)))
        choice = _masked(_aimed(choice, options, classes), options, data, tuple(x.shape[1:]))
        labels = _labels(options, classes, len(data)) or (y.tolist() if labelled else [None] * len(data))
        outcomes = _attack_floats(options, model, classes, x, labels, choice, part, [])
    _print_count(outcomes, labels, tuple(x.shape[1:]), choice, options["out"])


def _choice(options: dict[str, Any], known: "KnownImages") -> "AttackChoice":
    """The attack, without its target; what is wrong about it is an error before a model is loaded or downloaded."""
    from robustkit.adversarial_examples.class_names import ClassNames
    from robustkit.adversarial_examples.making import AttackChoice
    from robustkit.data.masks import is_one_mask, load_mask
    from robustkit.engine.attack_tensors import attack_of
    from robustkit.primitives.threat import needs_network

    if known.class_names:
        for text in filter(None, (options["label"], options["target"])):
            ClassNames(known.class_names, len(known.class_names)).number(text)
    threat = threat_of(options, known.threats)
    if needs_network(threat.norm):
        raise UserError(
            f"{threat.norm} cannot be guaranteed for 8-bit images, whose features change when they are rounded; "
            "take robustkit.evaluate, or robustkit.attack in Python."
        )
    # A mask of each picture is read when the pictures are known.
    given = options["mask"]
    mask = load_mask(given) if given is not None and is_one_mask(given) else None
    attack_of(options["method"], threat.norm, threat.eps_text, mask)
    batch = _BATCH if options["batch_size"] == "auto" else options["batch_size"]
    progress = False if options["quiet"] else None
    return AttackChoice(options["method"], threat.norm, threat.eps_text, None, batch, options["seed"], progress, mask)


def _aimed(choice: "AttackChoice", options: dict[str, Any], classes: "ClassNames") -> "AttackChoice":
    """The choice with its target, now that the classes are known."""
    target = options["target"]
    return choice if target is None else replace(choice, target=classes.number(target))


def _masked(choice: "AttackChoice", options: dict[str, Any], data: "Dataset", shape: tuple[int, ...]) -> "AttackChoice":
    """The choice with the masks of the pictures, now that their names and their size are known.

    Raises:
        UserError: a mask is missing, cannot be read, or has another size than the pictures.
    """
    from robustkit.data.masks import masks_of_data
    from robustkit.engine.attack_tensors import attack_of

    if options["mask"] is None:
        return choice
    mask = choice.mask or masks_of_data(options["mask"], data)
    attack_of(choice.method, choice.norm, choice.eps, mask)
    mask.check(shape)
    return replace(choice, mask=mask)


@contextmanager
def _loader(options: dict[str, Any], weights: str | None) -> "Iterator[Load]":
    """A function that loads the model for some data; a training shows its progress while the context lasts.

    Raises:
        UserError: there are options for a server, and the model is none.
    """
    from robustkit.host.bars import Bars
    from robustkit.models.black_boxes import require_server

    remote = remote_of(options)
    if remote is not None:
        require_server([options["model"]])
    with Bars(options["quiet"]) as bars:
        yield lambda data: model_of({**options, "weights": weights}, data, bars, remote)


def _classes(names: tuple[str, ...], model: "PixelModel") -> "ClassNames":
    from robustkit.adversarial_examples.class_names import ClassNames

    return ClassNames(names, model.num_classes)


def _labels(options: dict[str, Any], classes: "ClassNames", count: int) -> list[int | None]:
    """The label of `--label` for each image; none without it."""
    return [] if options["label"] is None else [classes.number(options["label"])] * count


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _print_and_store(run: "PictureRun", part: Path) -> list[str]:
    """Attack pictures, print a line for each, and write results.csv; returns the outcomes."""
    from robustkit.adversarial_examples.making import with_confidence
    from robustkit.adversarial_examples.picture_run import write_results

    results = []
    for result in run.results():
        results.append(result)
        change = with_confidence(result.label, result.confidence)
        prediction = with_confidence(result.prediction, result.prediction_confidence)
        if result.outcome == "broken":
            change += f" -> {prediction}"
            change += f"  {run.choice.norm} {result.distance:.4g}  {_queries(result.queries)}"
        elif result.outcome == "clean-wrong":
            change += f"  clean-wrong: {prediction}"
        else:
            change += f"  {_SHOWN.get(result.outcome, result.outcome)}"
            change += "" if result.outcome in _BEFORE else f"  {_queries(result.queries)}"
        echo(printable(f"{result.source}: {change}"))
    write_results(results, run.choice, part)
    return [result.outcome for result in results]


def _attack_floats(
    options: dict[str, Any], model: "PixelModel", classes: "ClassNames", x: "Tensor", labels: list[int | None],
    choice: "AttackChoice", part: Path, sources: list[str],
) -> list[str]:  # fmt: skip
    """Attack images and write one file of floats; returns the outcomes."""
    from robustkit.adversarial_examples.array_run import attack_arrays

    done = attack_arrays(classifier_of(options, model), x, labels, choice, part, sources)
    for row, outcome in enumerate(done.outcomes):
        change = classes.text(int(done.y[row]))
        if outcome == "broken":
            change += f" -> {classes.text(int(done.predictions[row]))}  {choice.norm} {done.distances[row]:.4g}"
        else:
            change += f"  {outcome}"
        change += "" if outcome in _BEFORE else f"  {done.queries[row]:,} queries"
        echo(printable(f"{sources[row] if sources else row}: {change}"))
    return [str(outcome) for outcome in done.outcomes]


def _print_count(
    outcomes: list[str], labels: list[int | None], shape: tuple[int, ...], choice: "AttackChoice", out: Path
) -> None:
    counts = Counter(_SHOWN.get(outcome, outcome) for outcome in outcomes if outcome != "broken")
    rest = "".join(f", {count} {outcome}" for outcome, count in counts.items())
    predicted = sum(label is None for label in labels)
    source = "predicted" if predicted == len(labels) else "given" if not predicted else f"{predicted} predicted"
    echo(
        f"\n{outcomes.count('broken')} of {len(outcomes)} broken{rest}; {choice.method}, "
        f"{choice.norm_label} {choice.eps}, size {'x'.join(map(str, shape[1:]))}, label: {source}"
    )
    echo(printable(f"{out}{os.sep if out.is_dir() else ''}"))
