"""`robustkit trace`: where a perturbation grows in a network, as a table, an HTML page and data files."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    RADIUS,
    batch_size_option,
    input_options,
    remedy_options,
    require_model,
    run_options,
    samples_option,
    threat_options,
)
from .output import command_line, dataset_label, output_folder
from .repeated import OneValueEach
from .requests import evaluation_of_one_model
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.evaluation.resolved import Evaluation
    from robustkit.host.bars import Bars
    from robustkit.tracing import Album, Traced

_OUT = Path("robustkit-trace")
_LARGE = 3 * 64 * 64  # values per image; of larger images the page shows fewer, so that it can be sent by e-mail
_FEW = 3


@click.command(cls=OneValueEach)
@input_options
@remedy_options
@click.option("-a", "--attack", default="pgd:steps=20", show_default=True, metavar="NAME[:K=V,...]",
              help="See `robustkit list attacks`.")  # fmt: skip
@threat_options("Linf, L2, L1 or L0", f"{RADIUS}, a number of values for L0")
@samples_option(64)
@click.option("--layer", "layers", multiple=True, metavar="NAME|GLOB",
              help="Layers to measure and to show. Repeatable. [default: all that run]")  # fmt: skip
@batch_size_option
@run_options(_OUT)
def trace(**options: Any) -> None:
    """Where a perturbation grows, layer by layer: a table, trace.html with images, trace.csv and trace.json."""
    require_model(options)
    with output_folder(options["out"], ("trace.html", "trace.csv", "trace.json")):
        _work(options)


def _work(options: dict[str, Any]) -> None:
    from robustkit.host.bars import Bars
    from robustkit.host.console import SafeConsole

    from .wings import reports

    out = options["out"]
    with Bars(options["quiet"]) as bars, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        evaluation = evaluation_of_one_model(options, options["attack"], bars)
        traced, pictures = _traced(evaluation, options, bars)
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        echo(f"Warning: {text}", err=True)
    context = reports.TraceContext(dataset_label(evaluation.data), evaluation.data.class_names, command_line())
    reports.write_trace(traced, pictures, out, context)
    reports.print_trace(traced, SafeConsole())
    echo(f"\n{out}{os.sep}  trace.html  trace.csv  trace.json")


def _traced(evaluation: "Evaluation", options: dict[str, Any], bars: "Bars") -> "tuple[Traced, Album]":
    from robustkit.tracing import album
    from robustkit.tracing import trace as follow

    (classifier,), threat = evaluation.classifiers, evaluation.plan.threats[0]
    layers = list(options["layers"]) or None
    x, y = evaluation.data.batch(evaluation.ids)
    bars.say(f"{options['attack']} at {threat.norm} {threat.eps_text} on {len(x)} images, then layer by layer")
    traced = follow(
        classifier, x, y, attack=options["attack"], norm=threat.norm, eps=threat.eps_text, layers=layers,
        seed=options["seed"], batch_size=evaluation.slots or 64, numbers=evaluation.ids,
    )  # fmt: skip
    return traced, album(classifier, traced, layers=layers, **({"images": _FEW} if x[0].numel() > _LARGE else {}))
