"""`robustkit selftest`: whether the automatic checks do their work on this machine."""

import click

from robustkit import limits

from .repeated import OneValueEach
from .terminal import echo

FAILED = 1


@click.command(cls=OneValueEach)
@click.option("--seed", type=click.IntRange(min=0, max=limits.SEED), default=0, show_default=True)
def selftest(seed: int) -> int:
    """Evaluate networks with masked gradients and an ordinary one, and print which checks fail.

    Each network with masked gradients must fail the check that is made for it. Checks that fail for the same reason may
    fail, too, and no others; the ordinary network (honest) must fail none. Otherwise the status is 1. Takes a minute or
    two.
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
        echo("\nOther checks that failed as expected, and why:")
        for line in overlaps:
            echo(f"  {line}")
    return 0 if holds else FAILED
