"""`robustkit compare`: which models of finished runs differ."""

from pathlib import Path

import click

from .option_types import OutPath
from .repeated import OneValueEach
from .terminal import echo


@click.command(cls=OneValueEach)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OutPath(), help="Page (.html), or CSV file for the pairs. [default: none]")
def compare(runs: tuple[Path, ...], out: Path | None) -> None:
    """Compare all models of finished runs by paired tests on the same images.

    One run is enough if it has several models. Differences are tested by McNemar's exact test, corrected by Holm.
    """
    from robustkit.comparison import compare as comparison_of
    from robustkit.host.console import SafeConsole

    from .wings import reports

    comparison = comparison_of.compare(*runs)
    if out is not None:
        write = reports.write_comparison_page if out.suffix.lower() == ".html" else reports.write_comparison
        write(comparison, out)
    reports.print_comparison(comparison, SafeConsole())
    if out is not None:
        echo(f"\n{out}")
