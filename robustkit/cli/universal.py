"""`robustkit universal`: one perturbation for all images, fitted on one split and judged on another."""

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError
from robustkit.paths import user_path

from .option_types import CountOr, OpenShare
from .options import (
    batch_size_option,
    data_of,
    input_options,
    rejects_option,
    remedy_options,
    require_model,
    run_options,
    samples_option,
    threat_options,
)
from .output import how_to_go_on
from .repeated import OneValueEach
from .requests import sample_count
from .terminal import echo
from .training import classifier_of, model_of, threat_of

if TYPE_CHECKING:
    from robustkit.adversarial_examples.universal_files import JudgedOn, UniversalChoice
    from robustkit.classifier.classifier import Classifier
    from robustkit.data import Dataset
    from robustkit.engine.fitted import FittedPerturbation
    from robustkit.statistics.intervals import Proportion

_OUT = Path("universal")
_BATCH = 64
_OF_THE_FIT = ("method", "norm", "eps", "target", "fit_split", "fit_share", "fit_samples", "seed")


@click.command(cls=OneValueEach)
@input_options
@remedy_options
@rejects_option
@click.option("-a", "--attack", "method", default="universal", show_default=True, metavar="NAME[:K=V,...]",
              help="universal or adversarial_patch; see `robustkit list attacks`.")  # fmt: skip
@threat_options("Linf or L2")
@click.option("--target", metavar="CLASS", help="Class that the model should predict. [default: any wrong class]")
@click.option("--fit-split", default="train", show_default=True, help="Split that the perturbation is fitted on.")
@click.option("--fit-share", type=OpenShare(0, 1), metavar="SHARE",
              help="Fit on this share of --split instead, such as 0.5, and judge on the rest.")  # fmt: skip
@click.option("--fit-samples", type=CountOr("all"), default=1000, show_default=True,
              help="Number of images that the perturbation is fitted on.")  # fmt: skip
@samples_option(1000, "images that the perturbation is judged on")
@click.option("--places", type=click.IntRange(min=1), metavar="N",
              help="Number of random places of a patch that are judged on each image. [default: 16]")  # fmt: skip
@click.option("--judge-on", "others", multiple=True, metavar="NAME",
              help="Judge the perturbation on this model too. Repeatable.")  # fmt: skip
@click.option("--judge-weights", "other_weights", multiple=True, metavar="FILE|NAME",
              help="Weights; one per --judge-on.")  # fmt: skip
@click.option("--perturbation", type=click.Path(path_type=Path), metavar="FILE|FOLDER",
              help="Fit nothing: judge the perturbation of an earlier run.")  # fmt: skip
@batch_size_option
@run_options(_OUT)
@click.pass_context
def universal(context: click.Context, /, **options: Any) -> None:
    """One perturbation for all images: fitted on one split, judged on another.

    Writes perturbation.safetensors, perturbation.png and results.csv. An --out that exists is refused; after an
    interruption the same command continues the fit.
    """
    require_model(options)
    if options["perturbation"] is not None:
        _refuse_fit_options(context)
    try:
        _work(options)
    except KeyboardInterrupt:
        checkpoint = _checkpoint(user_path(options["out"]))
        echo(f"Interrupted. {how_to_go_on(checkpoint, checkpoint.exists())}", err=True)
        sys.exit(130)


def _refuse_fit_options(context: click.Context) -> None:
    for option in context.command.params:
        typed = context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
        if typed and option.name in _OF_THE_FIT:
            raise UserError(f"--perturbation judges what was fitted before, so leave out {max(option.opts, key=len)}.")


def _work(options: dict[str, Any]) -> None:
    from robustkit.adversarial_examples.files import new_output, require_new
    from robustkit.adversarial_examples.universal_files import (
        StoredPerturbation,
        read_universal,
        write_judgements,
        write_universal,
    )
    from robustkit.data.overlap import check_disjoint

    require_new(user_path(options["out"]))
    if len(options["other_weights"]) not in (0, len(options["others"])):
        raise UserError(
            f"There are {len(options['others'])} --judge-on but {len(options['other_weights'])} --judge-weights; give "
            "one each."
        )
    earlier = None if options["perturbation"] is None else read_universal(options["perturbation"])
    test = data_of(options)
    choice = _choice(options, test) if earlier is None else earlier.choice
    _check_places(options["places"], choice)
    with new_output(options["out"]) as part:
        if earlier is None:
            fit_data, test = _splits(options, test)
            images = check_disjoint(
                {"fitted": _used(fit_data, options["fit_samples"]), "judged": _used(test, options["samples"])}
            )["fitted"]
            model, *others = _classifiers(options, test)  # all at first: a misspelt one must not cost the fit
            fitted = _fitted(options, choice, model, fit_data)
            judgements = [_judged(options, fitted, model, fit_data, "fit_samples", fit=True)]
        else:
            fitted, judgements = earlier.fitted, []
            test = _unseen(_used(test, options["samples"]), earlier.images)
            model, *others = _classifiers(options, test)
        judgements.append(_judged(options, fitted, model, test))
        judgements += [_judged(options, fitted, other, test) for other in others]
        if earlier is None:
            write_universal(StoredPerturbation(fitted, choice, images), judgements, part)
        else:
            part.mkdir()
            write_judgements(judgements, choice, part)
    if earlier is None:
        _checkpoint(user_path(options["out"])).unlink(missing_ok=True)
    _print(fitted, choice, judgements)
    echo(f"\n{options['out']}{os.sep}")


def _choice(options: dict[str, Any], data: "Dataset") -> "UniversalChoice":
    """The attack; what is wrong about it is an error before a model is loaded."""
    from robustkit.adversarial_examples.universal_files import UniversalChoice
    from robustkit.primitives import registry

    method = options["method"]
    if not registry.universal_kind(method).norms:
        if options["norm"]:
            raise UserError(f"{method} has no radius; leave out --norm {options['norm']}.")
        registry.build_universal(method, "", options["eps"])
        return UniversalChoice(method, None, None)
    threat = threat_of(options, data.threats)
    registry.build_universal(method, threat.norm, threat.eps_text)
    return UniversalChoice(method, threat.norm, threat.eps_text)


def _check_places(places: int | None, choice: "UniversalChoice") -> None:
    from robustkit.primitives import registry

    if places is not None and not registry.build_universal(choice.method, choice.norm or "Linf", choice.eps).placed:
        raise UserError(f"{choice.method} is not put at random places, so leave out --places {places}.")


def _splits(options: dict[str, Any], test: "Dataset") -> "tuple[Dataset, Dataset]":
    """The images that it is fitted to, and those that it is judged on."""
    from robustkit.data import held_out, other_split

    if options["fit_share"] is not None:
        rest, part = held_out(test, options["fit_share"])
        return part, rest
    if options["fit_split"] == options["split"]:
        raise UserError(
            f"The perturbation would be fitted and judged on the same images, {options['split']}; give another "
            "--fit-split, or --fit-share 0.5."
        )
    try:
        return other_split(test, options["fit_split"]), test
    except UserError as error:
        raise UserError(f"{str(error).rstrip('.')}; or fit on a share of {test.split}: --fit-share 0.5.") from None


def _unseen(data: "Dataset", fitted: frozenset[bytes]) -> "Dataset":
    """The images that the perturbation was not fitted to: on the others its numbers overstate the attack."""
    from robustkit.data import DatasetPart
    from robustkit.data.overlap import image_hashes

    unseen = tuple(number for number, digest in enumerate(image_hashes(data)) if digest not in fitted)
    if not unseen:
        raise UserError(
            f"The perturbation was fitted to all {len(data):,} images of {data.name} {data.split}; give another "
            "--split."
        )
    if len(unseen) < len(data):
        echo(f"{len(data) - len(unseen):,} images that the perturbation was fitted to are left out.", err=True)
    return DatasetPart(data, unseen)


def _classifier(options: dict[str, Any], name: str, weights: str | None, data: "Dataset") -> "Classifier":
    from robustkit.host.bars import Bars

    with Bars(options["quiet"]) as bars:  # closed before the fit, which shows a bar of its own
        model = model_of({**options, "model": name, "weights": weights}, data, bars)
    return classifier_of(options, model)


def _classifiers(options: dict[str, Any], data: "Dataset") -> "tuple[Classifier, ...]":
    """The model of the fit and all others that judge, each with a name of its own."""
    from robustkit.evaluation.classifiers import uniquely_named

    names = [options["model"], *options["others"]]
    files = [options["weights"], *(options["other_weights"] or [None] * len(options["others"]))]
    loaded = [_classifier(options, name, file, data) for name, file in zip(names, files, strict=True)]
    return uniquely_named(loaded, names, files)


def _fitted(
    options: dict[str, Any], choice: "UniversalChoice", model: "Classifier", data: "Dataset"
) -> "FittedPerturbation":
    from robustkit.adversarial_examples.class_names import ClassNames
    from robustkit.engine.fit_universal import fit_universal

    target = options["target"]
    if target is not None:
        target = ClassNames(data.class_names, len(data.class_names)).number(target)
    batch = _BATCH if options["batch_size"] == "auto" else options["batch_size"]
    x, y = _images(data, options["fit_samples"])
    return fit_universal(
        model, x, y, choice.method, eps=choice.eps, norm=choice.norm or "Linf", target=target, batch_size=batch,
        seed=options["seed"], progress=False if options["quiet"] else None, checkpoint=_checkpoint(options["out"]),
        keep_checkpoint=True,
    )  # fmt: skip


def _checkpoint(out: Path) -> Path:
    """The file from which the same command goes on after a kill; it stands beside the folder, which appears whole."""
    return out.with_name(f"{out.name}.fit.safetensors")


def _judged(
    options: dict[str, Any], fitted: "FittedPerturbation", model: "Classifier", data: "Dataset",
    samples: str = "samples", fit: bool = False,
) -> "JudgedOn":  # fmt: skip
    from robustkit.adversarial_examples.universal_files import JudgedOn
    from robustkit.checks.clean_accuracy import REMEDY, guessing

    x, y = _images(data, options[samples])
    judged = fitted.judge(model, x, y, places=options["places"])
    sentence = guessing(int(judged.clean_correct.sum()), len(judged.clean_correct), len(data.class_names))
    if sentence is not None:
        warnings.warn(f"{model.name}: {sentence} {REMEDY}", stacklevel=2)
    return JudgedOn(model.name, data.name, data.split, fit, judged)


def _images(data: "Dataset", samples: int | str) -> Any:
    used = _used(data, samples)
    return used.batch(range(len(used)))


def _used(data: "Dataset", samples: int | str) -> "Dataset":
    from robustkit.data import DatasetPart, pick

    return DatasetPart(data, tuple(pick(len(data), sample_count(samples))))


def _print(fitted: "FittedPerturbation", choice: "UniversalChoice", judgements: "list[JudgedOn]") -> None:
    radius = f", {choice.norm} {choice.eps}" if choice.eps else ""
    echo(f"{choice.method}{radius}, {len(fitted.fitted):,} images fitted to\n")
    places = judgements[0].judged.places
    heads = ["model", "images", "clean", "robust", "broken", *([f"at {places} places"] if places > 1 else [])]
    rows = [heads]
    for model, _, split, own, judged in judgements:
        clean, robust, broken, placed = map(_percent, judged.intervals)
        images = f"{split}{' (fitted)' if own else ''} n={len(judged.success)}"
        rows.append([model, images, clean, robust, broken, *([placed] if places > 1 else [])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    aim = fitted.target
    echo(
        "\nrobust: accuracy with the perturbation, an upper bound. broken: of the images classified correctly before."
        if aim is None else
        f"\nrobust: classified correctly before, and not taken for class {aim} then; other errors count as robust. "
        f"broken: of the images classified correctly before that are not of class {aim}."
    )  # fmt: skip


def _percent(share: "Proportion") -> str:
    if share.method == "none":
        return "-"
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f}-{100 * share.high:.1f})"
