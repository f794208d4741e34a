"""`--dry-run`: the plan of an evaluation and an upper bound on its cost, without loading a model."""

from typing import Any

import click

from .options import data_of
from .requests import smoothing_of


def print_plan(options: dict[str, Any]) -> None:
    """Print the cells of the plan with upper bounds on their forward and backward passes."""
    from robustkit.classifier.classifier import DRAWS
    from robustkit.data import pick
    from robustkit.evaluation.plan import plan, threats_of
    from robustkit.evaluation.setting import check_smoothable
    from robustkit.models import require_known

    for name in (*options["models"], *options["surrogates"]):
        require_known(name)
    data = data_of(options)
    made = plan(options["attacks"], threats_of(options["norms"], options["radii"], data.threats), options["surrogates"])
    smoothing = smoothing_of(options)
    if smoothing is not None:
        check_smoothable(made)
    copies = 1 if smoothing is None else options["eot"] or DRAWS
    judges = 1 if smoothing is None else smoothing.judges
    clean = 1 if smoothing is None else smoothing.polled
    images = len(pick(len(data), None if options["samples"] == "all" else options["samples"]))
    click.echo(f"{len(options['models'])} models on {images} images of {data.name} {data.split}; at most, per model:")
    click.echo(f"  {'attack':<28}{'threat':<14}{'trials/image':>12}{'forwards':>14}{'backwards':>14}")
    forwards = backwards = 0
    for cell in made.cells():
        trials, cost, asked = cell.attack.trials, cell.attack.cost, copies if cell.surrogate is None else 1
        ahead = images * trials * ((cost.forwards - 1) * asked + judges)
        back = images * trials * cost.backwards * asked
        forwards, backwards = forwards + ahead, backwards + back
        threat = f"{cell.threat.norm} {cell.threat.eps_text}"
        click.echo(f"  {cell.name:<28}{threat:<14}{trials:>12}{ahead:>14,}{back:>14,}")
    total = len(options["models"])
    if smoothing is not None:
        click.echo(f"  {'certificates, for all radii':<54}{images * clean:>14,}{0:>14,}")
    click.echo(
        f"In all at most {total * (forwards + images * clean):,} forwards and {total * backwards:,} backwards of one "
        "image; broken images leave early and an ensemble's later members see only what is left."
    )
    if smoothing is not None:
        click.echo(
            f"Smoothed: {copies} noisy copies per query, {judges:,} per verdict and {clean:,} per clean image; a "
            f"point that looks broken and is not adds {judges:,}. No L2 radius exceeds {smoothing.reach:.3g}."
        )
