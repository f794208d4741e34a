"""`robustkit ablate`: what each choice of a fine-tuning does, how sure that is, and what it costs."""

import copy
import os
import re
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError

from .config import read_config
from .options import CountOr, data_of, data_options, model_options, require_model
from .places import writing
from .training import model_of, recipe_of, threat_of, training_data

if TYPE_CHECKING:
    from robustkit.data import Dataset

_OUT = Path("robustkit-ablation")
_UNITS = {"s": 1, "m": 60, "h": 3600}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """A time such as 90s, 10m or 1.5h."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds."""
        match = re.fullmatch(r"(\d+\.?\d*)\s*([smh])", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no time; write for example 90s, 10m or 2h.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.command()
@click.option("--config", type=click.Path(path_type=Path), callback=read_config, is_eager=True, expose_value=False,
              help="TOML file with these options; what stands on the command line wins.")  # fmt: skip
@click.option("-m", "--model", metavar="NAME", help="torchvision name, timm:NAME, file.py:factory or a tuned file.")
@click.option("--weights", metavar="FILE|NAME", help="Checkpoint, or published weights.")
@model_options
@data_options
@click.option("--val-share", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), metavar="SHARE",
              help="Hold out a share of the training images, for data without a validation split.")  # fmt: skip
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
@click.option("--norm", help="Linf, L2 or L1. [default: usual for the data]")
@click.option("--eps", metavar="EPS", help="8/255 or 0.5, pixels in [0, 1]. [default: usual for the data]")
@click.option("--preset", default="safe", show_default=True, metavar="fast|safe|strong", help="Of all other choices.")
@click.option("--set", "choices", multiple=True, metavar="KEY=VALUE", help="Another choice of all cells. Repeatable.")
@click.option("--judge", default="pgd:steps=20", show_default=True, metavar="NAME[:K=V,...]",
              help="Attack that passes the verdicts on test images, on cross-entropy and on the margin.")  # fmt: skip
@click.option("-n", "--samples", type=CountOr("all"), default=1000, show_default=True,
              help="Test images, in a fixed order.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Print the trainings and what the baseline costs, then stop.")
@click.option("--device", default="auto", show_default=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=_OUT, show_default=True, help="Folder.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
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

    defenses, reports = (
        import_module("robustkit.defenses.ablation.ablation"),
        import_module("robustkit.reports.ablation.page"),
    )
    grid, recipe, whole = _grid(options), _recipe(options), data_of(options)
    train, val = training_data(whole, options["val_share"])
    test, threat = _chosen(whole, options["samples"]), threat_of(options, whole)
    with Bars(options["quiet"]) as bars:
        model = model_of(options, whole, bars).to(chosen_device(options["device"]))
        found = defenses.ablate(
            lambda: copy.deepcopy(model), train, val, test, eps=threat.eps_text, norm=threat.norm, grid=grid,
            seeds=options["seeds"], base=recipe, plan=options["plan"], budget=options["budget"],
            judge=options["judge"], out=options["out"], watch=bars,
        )  # fmt: skip
    varied = {key for axis in found.axes for key in axis.keys}
    about = reports.AblationContext(
        model=model.name, dataset=f"{test.name} {test.split}".strip(), threat=f"{threat.norm} {threat.eps_text}",
        images=found.images, judge=found.judge, seeds=options["seeds"], plan=options["plan"], missing=found.missing,
        base={key: value for key, value in asdict(recipe).items() if key not in varied | {"seed"}},
        command=" ".join(["robustkit", *sys.argv[1:]]),
    )  # fmt: skip
    reports.write_ablation(found.frame, found.runs, options["out"], about)
    import_module("robustkit.reports.ablation.terminal").print_ablation(found.frame, about, Console())
    click.echo(f"\n{options['out']}{os.sep}  ablation.html  ablation.csv  ablation-runs.csv")


def _explain(options: dict[str, Any]) -> None:
    from .watch import Bars

    defenses = import_module("robustkit.defenses.ablation.ablation")
    grids = import_module("robustkit.defenses.ablation.grid")
    cells = grids.cells_of(grids.axes_of(_grid(options)), options["plan"])
    test = data_of(options)
    train, val = training_data(test, options["val_share"])
    threat = threat_of(options, test)
    base = _recipe(options)
    recipe = cells[0].recipe(base)
    with Bars(options["quiet"]) as bars:
        model = model_of(options, test, bars)
    ground = defenses.Ground(train, val, test, threat.norm, threat.eps_text, options["judge"], start="")
    defenses.checked_cells(cells, base, model, ground)
    known = import_module("robustkit.defenses.cost.warnings").explained(
        model, train, recipe, eps=threat.eps_text, norm=threat.norm, held_out=len(val)
    )
    jobs = defenses.jobs_of(cells, options["seeds"])
    click.echo(f"{len(jobs)} trainings, in this order:")
    for job in jobs:
        click.echo(f"  {job.name}")
    click.echo(f"The baseline:\n{known}")
    minutes = len(jobs) * known.seconds / 60
    click.echo(f"If all take as long, at most {minutes:.1f} min, the verdicts on test images apart.")


def _grid(options: dict[str, Any]) -> Any:
    return import_module("robustkit.defenses.ablation.grid").read_grid(options["grid"])


def _recipe(options: dict[str, Any]) -> Any:
    """Of all cells; the seed is set by cell."""
    return recipe_of({**options, "seed": 0})


def _chosen(test: "Dataset", samples: Any) -> "Dataset":
    """The test images that verdicts are passed on."""
    from robustkit.data import DatasetPart, pick

    count = None if samples == "all" else samples
    return test if count is None or count >= len(test) else DatasetPart(test, tuple(pick(len(test), count)))
