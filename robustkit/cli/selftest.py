"""`robustkit selftest`: whether the automatic checks do their work on this machine."""

import click

from .repeated import OneValueEach
from .terminal import echo

FAILED = 1


@click.command(cls=OneValueEach)
@click.option("--seed", type=click.IntRange(min=0, max=2**31 - 1), default=0, show_default=True)
def selftest(seed: int) -> int:
    """Evaluate networks that are broken on purpose, and an honest one, and see which checks fail.

    Each must fail its own check and no other, except checks that fail for the same cause; the honest network must fail
    none. Otherwise the status is 1. Takes a minute or two.
    """
    from robustkit.masked_defenses.selftest import selftest as tested

    echo(f"{'network':<12} {'attacked by':<22} {'own check':<19} {'also failed':<48} holds")
    holds, overlaps = True, dict[str, None]()
    for result in tested(seed):
        case, own = result.case, result.case.check
        also = ", ".join(name for name in result.failed if name != own) or "-"
        missing = " (did not fail)" if own and own not in result.failed else ""
        verdict = "yes" if result.holds else f"NO: {', '.join(result.unexpected) or 'own check did not fail'}"
        echo(f"{case.name:<12} {case.attack:<22} {own + missing or '-':<19} {also:<48} {verdict}")
        holds &= result.holds
        overlaps |= {f"{case.name}, {name}: {case.overlaps[name]}": None
                     for name in result.failed if name in case.overlaps}  # fmt: skip
    if overlaps:
        echo("\nChecks that may fail with a network's own:")
        for line in overlaps:
            echo(f"  {line}")
    return 0 if holds else FAILED
