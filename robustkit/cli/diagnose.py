"""`robustkit diagnose`: where a network masks its gradients, as a table, an HTML page and a JSON file."""

import os
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
    from robustkit.diagnosis import Diagnosis

_OUT = Path("robustkit-diagnosis")
STATUS = {"clear": 0, "masked": 3, "randomized": 3, "loss saturated": 3, "inconclusive": 4}


@click.command(cls=OneValueEach)
@input_options
@remedy_options
@threat_options("Linf, L2, L1 or L0", f"{RADIUS}, a number of values for L0")
@click.option("--loss", default="log-odds", show_default=True, help="Loss of the attack: log-odds, ce, margin, dlr.")
@samples_option(64)
@click.option("--layer", "layers", multiple=True, metavar="NAME|GLOB", help="Examine only these layers. Repeatable.")
@click.option("--no-proof", is_flag=True, help="Run no attacks; the verdict is then never clear.")
@batch_size_option
@run_options(_OUT)
def diagnose(**options: Any) -> int:
    """Where a network masks its gradients, why, and how much an attack gains with the remedy.

    Writes diagnosis.html and diagnosis.json. Exit status: 0 clear, 3 masked, randomized or loss saturated, 4
    inconclusive. Clear does not mean robust.
    """
    require_model(options)
    with output_folder(options["out"], ("diagnosis.html", "diagnosis.json")):
        return STATUS[_work(options).verdict]


def _work(options: dict[str, Any]) -> "Diagnosis":
    from robustkit.diagnosis import diagnose as examine
    from robustkit.host.bars import Bars
    from robustkit.host.console import SafeConsole

    from .wings import reports

    out = options["out"]
    with Bars(options["quiet"]) as bars:
        evaluation = evaluation_of_one_model(options, f"pgd:loss={options['loss']}", bars)
        (classifier,), threat = evaluation.classifiers, evaluation.plan.threats[0]
        x, y = evaluation.data.batch(evaluation.ids)
        diagnosis = examine(
            classifier, x, y, eps=threat.eps_text, norm=threat.norm, loss=options["loss"],
            layers=list(options["layers"]) or None, seed=options["seed"], batch_size=evaluation.slots or 64,
            prove=not options["no_proof"],
        )  # fmt: skip
    context = reports.DiagnosisContext(dataset_label(evaluation.data), command_line())
    reports.write_diagnosis(diagnosis, out, context)
    reports.print_diagnosis(diagnosis, SafeConsole())
    echo(f"\n{out}{os.sep}  diagnosis.html  diagnosis.json")
    return diagnosis
