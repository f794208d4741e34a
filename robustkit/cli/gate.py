"""`robustkit gate`: fail a build whose model is not robust enough, or less robust than before."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .option_types import OutPath, RunPath
from .repeated import OneValueEach
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.comparison.gate import Gate

FAILED = 1


@click.command(cls=OneValueEach)
@click.argument("run", type=RunPath())
@click.option(
    "--fail-under",
    multiple=True,
    metavar="CONDITION",
    help='Minimum accuracy: "Linf@8/255>=0.40", "clean>=90%", "union>=0.30", "corruptions>=0.50" or '
    '"corruptions@fog>=0.4"; or "mCE<=0.9". Repeatable. Without any, and without --baseline: '
    "the conditions of evaluate --fail-under.",
)
@click.option("--baseline", type=RunPath(), help="Folder of an earlier run on the same images.")
@click.option(
    "--max-drop",
    default="0",
    show_default=True,
    metavar="SHARE",
    help="With --baseline: the largest drop that is accepted, as 0.02 or 2%; only significant drops fail.",
)
@click.option(
    "--judged-by",
    type=click.Choice(["point", "low", "high"]),
    default="point",
    show_default=True,
    help="What --fail-under compares: the measured accuracy (point), or the lower or upper end of its 95 % interval.",
)
@click.option("--allow-unreliable", is_flag=True, help="Let results pass that failed an automatic check of the run.")
@click.option("--junit", type=OutPath(), help="JUnit XML file with one test per model and condition.")
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True,
              help="What is printed; Markdown for a summary in continuous integration.")  # fmt: skip
def gate(
    run: Path, fail_under: tuple[str, ...], baseline: Path | None, max_drop: str, judged_by: str,
    allow_unreliable: bool, junit: Path | None, form: str,
) -> int:  # fmt: skip
    """Test every model of a finished run against conditions; the exit status is 1 if one does not hold.

    Quote a condition in a shell, because > redirects.
    """
    from robustkit.comparison import gate as gates
    from robustkit.comparison.junit import junit as junit_text
    from robustkit.errors import UserError
    from robustkit.host.files import write_text

    from .wings import reports

    try:
        found = gates.gate(
            run, fail_under=list(fail_under), baseline=baseline, max_drop=max_drop, judged_by=judged_by,
            allow_unreliable=allow_unreliable,
        )  # fmt: skip
    except UserError as error:
        if junit is not None:
            _write_error(junit, error)
        raise
    if form == "markdown":
        echo(reports.gate_markdown(found))
    else:
        print_checks(found)
    if junit is not None:  # after the answer, which a file that cannot be written must not hide
        write_text(junit, junit_text(found))
    return status_of(found)


def _write_error(file: Path, error: Exception) -> None:
    """Write the JUnit file of a gate that cannot be judged; where that fails, say so beside the error."""
    from robustkit.comparison.junit import junit_of_error
    from robustkit.errors import UserError
    from robustkit.host.files import write_text

    try:
        write_text(file, junit_of_error(str(error)))
    except UserError as other:
        echo(f"Error: {other}", err=True)


def print_checks(gate: "Gate") -> None:
    """Print a line for each check, and a note on the run's own checks."""
    for check in gate.checks:
        echo(f"{'pass' if check.passed else 'FAIL'}  {check.model}  {check.threat}: {check.reason}")
    if gate.note:
        echo(f"note  {gate.note}")


def status_of(gate: "Gate") -> int:
    """The exit status that says whether all checks passed."""
    return 0 if gate.passed else FAILED
