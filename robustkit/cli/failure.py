"""How a command says that it cannot go on."""

import click


def complain(sentence: str) -> None:
    """One line on standard error."""
    click.echo(f"Error: {' '.join(sentence.split())}", err=True)
