"""`robustkit ablate`: what each choice of a fine-tuning does, how sure that is, and what it costs."""

import copy
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError

from .option_types import Duration
from .options import (
    config_option,
    data_of,
    data_options,
    device_option,
    one_model_options,
    out_option,
    quiet_option,
    require_model,
    samples_option,
    threat_options,
    val_share_option,
)
from .places import writing
from .training import model_of, recipe_of, threat_of, training_data

if TYPE_CHECKING:
    from robustkit.data import Dataset

    from .wings import defenses

_OUT = Path("robustkit-ablation")


@click.command()
@config_option
@one_model_options
@data_options
@val_share_option
@click.option("-g", "--grid", multiple=True, metavar="KEY=VALUE,...",
              help="A choice of the recipe with its values, the baseline's first: freeze=none,prefix:layer1. A comma "
                   "of a value itself is written \\,; bn+lr=batch+0.05,frozen+0.01 changes two together. "
                   "Repeatable.")  # fmt: skip
@click.option("--plan", default="main-effects", show_default=True, metavar="main-effects|full",
              help="One change at a time, or then all combinations too.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Trainings per cell.")
@click.option(
    "--budget", type=Duration(), help="Begin no training after this: 90s, 10m, 2h. What is left out is named."
)
@threat_options("Linf, L2 or L1")
@click.option("--preset", default="safe", show_default=True, metavar="fast|safe|strong", help="Of all other choices.")
@click.option("--set", "choices", multiple=True, metavar="KEY=VALUE", help="Another choice of all cells. Repeatable.")
@click.option("--judge", default="pgd:steps=20", show_default=True, metavar="NAME[:K=V,...]",
              help="Attack that passes the verdicts on test images, on cross-entropy and on the margin.")  # fmt: skip
@samples_option(1000, "Test images")
@click.option("--explain", is_flag=True, help="Print the trainings and what the baseline costs, then stop.")
@device_option
@out_option(_OUT)
@quiet_option
def ablate(**options: Any) -> None:
    """Fine-tune over a grid of choices and seeds: a table, ablation.html and ablation.csv.

    The same command again goes on where it stopped; a larger grid or more seeds keep what was run.
    """
    require_model(options)
    if not options["grid"]:
        raise UserError("No grid is given; add for example --grid freeze=none,prefix:layer1 --grid bn=batch,frozen.")
    if options["explain"]:
        _explain(options)
        return
    with writing(options["out"], "The same command goes on after the last epoch that was kept."):
        _work(options)


def _work(options: dict[str, Any]) -> None:
    from rich.console import Console

    from robustkit.host.environment import chosen_device

    from .watch import Bars
    from .wings import defenses, reports

    grid, recipe, whole = defenses.read_grid(options["grid"]), _recipe(options), data_of(options)
    train, val = training_data(whole, options["val_share"])
    test, threat = _chosen(whole, options["samples"]), threat_of(options, whole)
    with Bars(options["quiet"]) as bars:
        model = model_of(options, whole, bars).to(chosen_device(options["device"]))
        ablation = defenses.ablate(
            lambda: copy.deepcopy(model), train, val, test, eps=threat.eps_text, norm=threat.norm, grid=grid,
            seeds=options["seeds"], base=recipe, plan=options["plan"], budget=options["budget"],
            judge=options["judge"], out=options["out"], watch=bars,
        )  # fmt: skip
    varied = {key for axis in ablation.axes for key in axis.keys}
    context = reports.AblationContext(
        model=model.name, dataset=f"{test.name} {test.split}".strip(), threat=f"{threat.norm} {threat.eps_text}",
        images=ablation.images, judge=ablation.judge, seeds=options["seeds"], plan=options["plan"],
        missing=ablation.missing,
        base={key: value for key, value in asdict(recipe).items() if key not in varied | {"seed"}},
        command=" ".join(["robustkit", *sys.argv[1:]]),
    )  # fmt: skip
    reports.write_ablation(ablation.frame, ablation.runs, options["out"], context)
    reports.print_ablation(ablation.frame, context, Console())
    click.echo(f"\n{options['out']}{os.sep}  ablation.html  ablation.csv  ablation-runs.csv")


def _explain(options: dict[str, Any]) -> None:
    from .watch import Bars
    from .wings import defenses

    cells = defenses.cells_of(defenses.axes_of(defenses.read_grid(options["grid"])), options["plan"])
    test = data_of(options)
    train, val = training_data(test, options["val_share"])
    threat = threat_of(options, test)
    base = _recipe(options)
    recipe = cells[0].recipe(base)
    with Bars(options["quiet"]) as bars:
        model = model_of(options, test, bars)
    ground = defenses.Ground(train, val, test, threat.norm, threat.eps_text, options["judge"], start="")
    defenses.checked_cells(cells, base, model, ground)
    cost = defenses.explained(model, train, recipe, eps=threat.eps_text, norm=threat.norm, held_out=len(val))
    jobs = defenses.jobs_of(cells, options["seeds"])
    click.echo(f"{len(jobs)} trainings, in this order:")
    for job in jobs:
        click.echo(f"  {job.name}")
    click.echo(f"The baseline:\n{cost}")
    minutes = len(jobs) * cost.seconds / 60
    click.echo(f"If all take as long, at most {minutes:.1f} min, the verdicts on test images apart.")


def _recipe(options: dict[str, Any]) -> "defenses.Recipe":
    """Of all cells; the seed is set by cell."""
    return recipe_of({**options, "seed": 0})


def _chosen(test: "Dataset", samples: Any) -> "Dataset":
    """The test images that verdicts are passed on."""
    from robustkit.data import DatasetPart, pick

    count = None if samples == "all" else samples
    return test if count is None or count >= len(test) else DatasetPart(test, tuple(pick(len(test), count)))
