"""`robustkit cache`: the models that were trained here."""

import click


@click.group()
def cache() -> None:
    """Models that were trained here once and are reused."""


@cache.command("list")
def entries() -> None:
    """What is in the cache, and where it is."""
    from robustkit.models import cache as models

    for entry in models.entries():
        click.echo(f"{entry.model:<24}{entry.dataset:<12}{entry.bytes / 1e6:8.1f} MB  {entry.path}")
    click.echo(f"The cache is {models.folder()}")


@cache.command()
@click.argument("name", required=False)
def clear(name: str | None) -> None:
    """Delete the cached models called NAME, or all of them."""
    from robustkit.models import cache as models

    for path in models.clear(name):
        click.echo(f"deleted {path}")
