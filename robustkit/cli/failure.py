"""Error messages of commands."""

import click


def print_error(message: str) -> None:
    """Print an error as one line on standard error."""
    click.echo(f"Error: {' '.join(message.split())}", err=True)
