"""`robustkit ablate`: the effect of each choice of a fine-tuning, with its uncertainty and its cost."""

import copy
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError

from .option_types import Duration
from .options import (
    data_of,
    input_options,
    require_model,
    run_options,
    samples_option,
    threat_options,
    val_share_option,
)
from .output import command_line, dataset_label, output_folder
from .repeated import OneValueEach
from .requests import sample_count
from .terminal import echo
from .training import TrainingInputs, model_of, training_inputs

if TYPE_CHECKING:
    from robustkit.data import Dataset

    from .wings import defenses, reports

_OUT = Path("robustkit-ablation")
_REPORTS = ("ablation.html", "ablation.csv", "ablation-runs.csv")
_CHECKPOINTS = "**/*.safetensors"  # of trainings, finished and not


@click.command(cls=OneValueEach)
@input_options
@val_share_option
@click.option("-g", "--grid", multiple=True, metavar="KEY=VALUE,...",
              help="A choice of the recipe with its values, the baseline's first: freeze=none,prefix:layer1. A comma "
                   "inside a value is written \\,; bn+lr=batch+0.05,frozen+0.01 changes two together. "
                   "Repeatable.")  # fmt: skip
@click.option("--design", default="main-effects", show_default=True, metavar="main-effects|full",
              help="One change at a time, or also all combinations.")  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Trainings per cell (combination)."
)
@click.option(
    "--max-time",
    type=Duration(),
    help="Start no training after this time: 90s, 10m, 2h. The output lists those left out.",
)
@threat_options("Linf, L2 or L1")
@click.option(
    "--preset", default="safe", show_default=True, metavar="fast|safe|strong", help="Preset for all other choices."
)
@click.option("--set", "choices", multiple=True, metavar="KEY=VALUE", help="Another choice, for all cells. Repeatable.")
@click.option("--judge", default="pgd:steps=20", show_default=True, metavar="NAME[:K=V,...]",
              help="Attack on the test images, run with cross-entropy and with the margin.")  # fmt: skip
@samples_option(1000, "test images")
@click.option("--plan", "plan_only", is_flag=True, help="Print the trainings and the cost of the baseline, then stop.")
@run_options(_OUT, seed=False)
def ablate(**options: Any) -> None:
    """Fine-tune over a grid of choices and seeds: a table, ablation.html and ablation.csv.

    The same command again goes on where it stopped; a larger grid or more seeds reuse the finished trainings.
    """
    require_model(options)
    if not options["grid"]:
        raise UserError("No grid is given; add for example --grid freeze=none,prefix:layer1 --grid bn=batch,frozen.")
    if options["plan_only"]:
        _print_plan(options)
        return
    with output_folder(options["out"], _REPORTS, _CHECKPOINTS):
        _work(options)


def _work(options: dict[str, Any]) -> None:
    from robustkit.host.bars import Bars
    from robustkit.host.console import SafeConsole
    from robustkit.host.environment import chosen_device

    from .wings import defenses, reports

    inputs, grid = _inputs(options), defenses.read_grid(options["grid"])
    test = _test_images(inputs.test, options["samples"])
    with Bars(options["quiet"]) as bars:
        model = model_of(options, inputs.test, bars).to(chosen_device(options["device"]))
        ablation = defenses.ablate(
            lambda: copy.deepcopy(model), inputs.train, inputs.val, test, eps=inputs.threat.eps_text,
            norm=inputs.threat.norm, grid=grid, seeds=options["seeds"], base=inputs.recipe, design=options["design"],
            max_time=options["max_time"], judge=options["judge"], out=options["out"], watch=bars,
        )  # fmt: skip
    context = _context(options, inputs, ablation, model.name)
    reports.write_ablation(ablation.frame, ablation.runs, options["out"], context)
    reports.print_ablation(ablation.frame, context, SafeConsole())
    echo(f"\n{options['out']}{os.sep}  ablation.html  ablation.csv  ablation-runs.csv")


def _context(
    options: dict[str, Any], inputs: TrainingInputs, ablation: "defenses.Ablation", model: str
) -> "reports.AblationContext":
    from .wings import reports

    threat = inputs.threat
    varied = {key for axis in ablation.axes for key in axis.keys}
    return reports.AblationContext(
        model=model, dataset=dataset_label(inputs.test), threat=f"{threat.norm} {threat.eps_text}",
        images=ablation.images, judge=ablation.judge, seeds=options["seeds"], design=options["design"],
        missing=ablation.missing,
        base={key: value for key, value in asdict(inputs.recipe).items() if key not in varied | {"seed"}},
        command=command_line(),
    )  # fmt: skip


def _print_plan(options: dict[str, Any]) -> None:
    from robustkit.host.bars import Bars

    from .wings import defenses

    cells = defenses.cells_of(defenses.axes_of(defenses.read_grid(options["grid"])), options["design"])
    train, val, test, base, threat = _inputs(options)
    baseline = cells[0].recipe(base)
    with Bars(options["quiet"]) as bars:
        model = model_of(options, test, bars)
    ground = defenses.AblationSetup(train, val, test, threat.norm, threat.eps_text, options["judge"], start="")
    defenses.checked_cells(cells, base, model, ground)
    cost = defenses.explained(model, train, baseline, eps=threat.eps_text, norm=threat.norm, held_out=len(val))
    jobs = defenses.jobs_of(cells, options["seeds"])
    echo(f"{len(jobs)} trainings, in this order:")
    for job in jobs:
        echo(f"  {job.name}")
    echo(f"The baseline:\n{cost}")
    minutes = len(jobs) * cost.seconds / 60
    echo(f"If all take as long: at most {minutes:.1f} min, plus the attack on the test images.")


def _inputs(options: dict[str, Any]) -> TrainingInputs:
    """The inputs of all trainings; each sets its own seed."""
    return training_inputs({**options, "seed": 0}, data_of(options))


def _test_images(test: "Dataset", samples: Any) -> "Dataset":
    """The test images that are attacked."""
    from robustkit.data import DatasetPart, pick

    count = sample_count(samples)
    return test if count is None or count >= len(test) else DatasetPart(test, tuple(pick(len(test), count)))
