"""`robustkit gate`: fail a build whose model is not robust enough, or less robust than before."""

from pathlib import Path

import click

from .terminal import echo

FAILED = 1


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--fail-under",
    multiple=True,
    metavar="CONDITION",
    help='Least accuracy, as "Linf@8/255>=0.40", "clean>=90%" or "union>=0.30"; may be repeated.',
)
@click.option("--baseline", type=click.Path(path_type=Path), help="An earlier run on the same images.")
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
    help="What --fail-under looks at: the measured accuracy, or an end of its 95 % interval.",
)
@click.option("--allow-unreliable", is_flag=True, help="Let results pass that the run calls unreliable.")
@click.option("--junit", type=click.Path(path_type=Path), help="JUnit XML file for the checks.")
def gate(
    run: Path, fail_under: tuple[str, ...], baseline: Path | None, max_drop: str, judged_by: str,
    allow_unreliable: bool, junit: Path | None,
) -> int:  # fmt: skip
    """Check every model of a finished run; the status is 1 if a check fails.

    The condition needs quotes in a shell: > redirects otherwise.
    """
    from robustkit.comparison import gate as gates
    from robustkit.comparison.junit import junit as junit_text
    from robustkit.host.files import write_text

    found = gates.gate(
        run, fail_under=list(fail_under), baseline=baseline, max_drop=max_drop, judged_by=judged_by,
        allow_unreliable=allow_unreliable,
    )  # fmt: skip
    if junit is not None:
        write_text(junit, junit_text(found))
    for check in found.checks:
        echo(f"{'pass' if check.passed else 'FAIL'}  {check.model}  {check.threat}: {check.reason}")
    return 0 if found.passed else FAILED
