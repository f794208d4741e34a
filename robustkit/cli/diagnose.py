"""`robustkit diagnose`: where a network masks its gradients, as a table, a page and a file."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .config import read_config
from .options import CountOr, data_options, model_options, remedy_options, require_model, setting_of
from .places import writing

if TYPE_CHECKING:
    from robustkit.diagnosis import Diagnosis

_OUT = Path("robustkit-diagnosis")
STATUS = {"clear": 0, "masked": 3, "stochastic": 3, "loss saturated": 3, "inconclusive": 4}


@click.command()
@click.option("--config", type=click.Path(path_type=Path), callback=read_config, is_eager=True, expose_value=False,
              help="TOML file with these options; what stands on the command line wins.")  # fmt: skip
@click.option("-m", "--model", metavar="NAME", help="torchvision name, timm:NAME or file.py:factory.")
@click.option("--weights", metavar="FILE|NAME", help="Checkpoint, or published weights.")
@model_options
@data_options
@remedy_options
@click.option("--norm", help="Linf, L2, L1 or L0. [default: usual for the data]")
@click.option("--eps", metavar="EPS", help="8/255 or 0.5, pixels in [0, 1]. [default: usual for the data]")
@click.option(
    "--loss", default="log-odds", show_default=True, help="What the attack climbs: log-odds, ce, margin, dlr."
)
@click.option("-n", "--samples", type=CountOr("all"), default=64, show_default=True, help="Images, in a fixed order.")
@click.option("--layer", "layers", multiple=True, metavar="NAME|GLOB", help="Look at these alone. Repeatable.")
@click.option("--no-proof", is_flag=True, help="Do not attack the model before and after the remedy.")
@click.option("-b", "--batch-size", type=CountOr("auto"), default="auto", show_default=True, help="Images at once.")
@click.option("--device", default="auto", show_default=True)
@click.option("--seed", type=click.IntRange(min=0, max=2**31 - 1), default=0, show_default=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=_OUT, show_default=True, help="Folder.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def diagnose(**options: Any) -> int:
    """Where a network masks its gradients, why, and what an attack gains when that is undone.

    Writes diagnosis.html and diagnosis.json. Exit status: 0 clear, 3 masked (or stochastic, or the loss saturated),
    4 inconclusive. Clear does not mean robust.
    """
    require_model(options)
    with writing(options["out"]):
        return STATUS[_work(options).verdict]


def _work(options: dict[str, Any]) -> "Diagnosis":
    from rich.console import Console

    from robustkit.diagnosis import diagnose as examine

    from .watch import Bars

    out = options["out"]
    with Bars(options["quiet"]) as bars:
        setting = setting_of(options, f"pgd:loss={options['loss']}", bars)
        (classifier,), threat = setting.classifiers, setting.plan.threats[0]
        x, y = setting.data.batch(setting.ids)
        found = examine(
            classifier, x, y, eps=threat.eps_text, norm=threat.norm, loss=options["loss"],
            layers=list(options["layers"]) or None, seed=options["seed"], batch_size=setting.slots or 64,
            prove=not options["no_proof"],
        )  # fmt: skip
    reports = import_module("robustkit.reports.diagnosis.page")
    about = reports.DiagnosisContext(
        f"{setting.data.name} {setting.data.split}".strip(), " ".join(["robustkit", *sys.argv[1:]])
    )
    reports.write_diagnosis(found, out, about)
    import_module("robustkit.reports.diagnosis.terminal").print_diagnosis(found, Console())
    click.echo(f"\n{out}{os.sep}  diagnosis.html  diagnosis.json")
    return found
