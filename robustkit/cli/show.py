"""`robustkit show`: the table of a finished run again, or what happened to one of its images."""

from pathlib import Path

import click

from .repeated import OneValueEach
from .terminal import echo


@click.command(cls=OneValueEach)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only this model. Repeatable.")
@click.option("-a", "--attack", "attacks", multiple=True, metavar="NAME", help="Only this attack. Repeatable.")
@click.option("--norm", "norms", multiple=True, help="Only this norm. Repeatable.")
@click.option("--eps", "radii", multiple=True, metavar="EPS", help="Only this radius. Repeatable.")
@click.option("--image", type=click.IntRange(min=0), metavar="N", help="What happened to this image of the data set.")
@click.option("--format", "form", default="table", show_default=True, metavar="table|csv|json|markdown|latex",
              help="What is printed.")  # fmt: skip
def show(
    run: Path, models: tuple[str, ...], attacks: tuple[str, ...], norms: tuple[str, ...], radii: tuple[str, ...],
    image: int | None, form: str,
) -> None:  # fmt: skip
    """Print the table of a run folder again, or a part of it. No model is needed, and nothing is written."""
    from robustkit.evidence.reading import load_run
    from robustkit.evidence.selection import of_image, selected
    from robustkit.host.console import SafeConsole

    from .wings import reports

    chosen = selected(load_run(run), models=models, attacks=attacks, norms=norms, radii=radii)
    if image is not None:
        echo(reports.shown_image(chosen, of_image(chosen, image), form).rstrip("\n"))
    elif form == "table":
        reports.print_table(chosen, SafeConsole())
    else:
        echo(reports.shown_table(chosen, form).rstrip("\n"))
