"""`robustkit merge`: several run folders as one."""

import os
from pathlib import Path

import click

from .option_types import OutPath
from .repeated import OneValueEach
from .terminal import echo

_SHOWN = 5


@click.command(cls=OneValueEach)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=OutPath(), help="Folder of the merged run, a new one.")
def merge(runs: tuple[Path, ...], out: Path) -> None:
    """Join runs on the same images into one run folder: more models, attacks or radii, or parts of one plan.

    Runs that differ in data, seed or settings, or contradict each other, are refused.
    """
    from robustkit.evaluation.merging import merge as merged_of

    from .output import write_evaluation

    merged = merged_of(runs, out)
    write_evaluation(merged.run, out)
    for note in merged.notes:
        echo(f"\n{note}")
    if merged.missing:
        echo("\nNo run has these results; `robustkit evaluate` with all models, attacks and radii of the runs and "
             f"--out {out} adds them:")  # fmt: skip
        for text in merged.missing[:_SHOWN]:
            echo(f"  {text}")
        if len(merged.missing) > _SHOWN:
            echo(f"  and {len(merged.missing) - _SHOWN} more")
    echo(f"\n{out}{os.sep}  report.html  results.csv  samples.csv  run.sqlite")
