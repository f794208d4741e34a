"""`robustkit cache`: the models that were trained on this machine."""

import click

from robustkit.errors import UserError

from .repeated import OneValueEach
from .terminal import echo


@click.group()
def cache() -> None:
    """Models that were trained on this machine once and are reused."""


@cache.command("list", cls=OneValueEach)
def entries() -> None:
    """List the cached models and the cache folder."""
    from robustkit.models import cache as models

    for entry in models.entries():
        echo(f"{entry.model:<24}{entry.dataset:<12}{entry.bytes / 1e6:8.1f} MB  {entry.path}")
    echo(f"The cache is {models.folder()}")


@cache.command(cls=OneValueEach)
@click.argument("name", required=False)
def clear(name: str | None) -> None:
    """Delete the cached models called NAME, or all of them."""
    from robustkit.models import cache as models

    deleted = models.clear(name)
    if name is not None and not deleted:
        raise UserError(f"Nothing in the cache is called {name!r}; see robustkit cache list.")
    for path in deleted:
        echo(f"deleted {path}")
