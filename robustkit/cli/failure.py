"""Error messages of commands."""

import click


def print_error(sentence: str) -> None:
    """Print an error as one line on standard error."""
    click.echo(f"Error: {' '.join(sentence.split())}", err=True)
