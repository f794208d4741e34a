"""`robustkit report`: render stored runs again, several in one report, without a model."""

from pathlib import Path

import click

from .terminal import print_report_path


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path),
              help="HTML file; a name that ends in .md or .tex gives a table in that language. [default: report.html "
                   "in the run folder, or here for several runs]")  # fmt: skip
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Print the table of each run and write the HTML report of all of them together."""
    from robustkit.evidence.reading import load_run
    from robustkit.host.console import SafeConsole

    from .wings import reports

    loaded = [load_run(folder) for folder in runs]
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    # All files before the first line: the reader of a pipe may end after it.
    for run in loaded if out is None else []:
        reports.write_csv(run, run.folder)
    write = reports.write_plain_table if reports.is_plain_table(target) else reports.write_report
    write(loaded, target)
    reports.print_tables(loaded, SafeConsole())
    print_report_path(target, str(target))
