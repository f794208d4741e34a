"""`robustkit report`: render stored runs again, several in one report, without a model."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from robustkit.errors import UserError

from .option_types import OutPath
from .repeated import OneValueEach
from .terminal import echo, print_report_path

if TYPE_CHECKING:
    from robustkit.evidence.run import Run


@click.command(cls=OneValueEach)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OutPath(),
              help="HTML file; a name that ends in .md or .tex gives a table in that language, .json everything for "
                   "programs. [default: report.html, or .md, .tex, .json, in the run folder; here for several "
                   "runs]")  # fmt: skip
@click.option("--format", "form", metavar="html|markdown|latex|json|model-card",
              help="Form of the file. [default: by its name]")  # fmt: skip
@click.option("--card", type=OutPath(), metavar="FILE.json|FILE.md",
              help="Write only a card for auditors: threat model, data, models, what was not tested.")  # fmt: skip
@click.option("--threshold", "thresholds", multiple=True, metavar="CONDITION",
              help='With --card: a condition to be judged, "Linf@8/255>=0.4". Repeatable.')  # fmt: skip
def report(
    runs: tuple[Path, ...], out: Path | None, form: str | None, card: Path | None, thresholds: tuple[str, ...]
) -> None:
    """Print the table of each run and write the HTML report of all of them together."""
    from robustkit.evidence.reading import load_run
    from robustkit.host.console import SafeConsole

    from .wings import reports

    loaded = [load_run(folder) for folder in runs]
    if card is not None:
        _write_card(loaded, card, out, thresholds)
        return
    if thresholds:
        raise UserError("--threshold is a part of a card; add --card card.json, or use robustkit gate.")
    name = reports.usual_name(form)
    target = out or (runs[0] / name if len(runs) == 1 else Path(name))
    # All files before the first line: the reader of a pipe may end after it.
    for run in loaded if out is None else []:
        reports.write_csv(run, run.folder)
        reports.write_corruptions(run, run.folder)
    reports.write_form(loaded, target, form)
    reports.print_tables(loaded, SafeConsole())
    print_report_path(target, str(target))


def _write_card(loaded: "list[Run]", card: Path, out: Path | None, thresholds: tuple[str, ...]) -> None:
    from .wings import reports

    if len(loaded) > 1:
        raise UserError("A card is about one run; name one, or join the runs with robustkit merge.")
    if out is not None:
        raise UserError("--card and --out write different files; give one of them at a time.")
    reports.write_card(loaded[0], card, thresholds)
    echo(str(card))
