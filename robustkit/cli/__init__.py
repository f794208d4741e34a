"""The command line: `robustkit evaluate`, `report`, `list` and `cache`."""

import os
import sys

import click

import robustkit
from robustkit.errors import UserError

from .cache import cache
from .catalogue import catalogue
from .evaluate import evaluate
from .report import report

# GNU's OpenMP spins while it waits: on two busy cores a resnet18 step took 7 times as long (0.29 s against 0.04 s),
# with this bound 3.5 times, and on idle ones 5 % longer. Read once, when torch loads; whoever sets it keeps it.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


class Commands(click.Group):
    """A group that turns what a user can mend into one line and exit status 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; anything else than a `UserError` is our own fault and keeps its traceback."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(robustkit.__version__, prog_name="robustkit")
def main() -> None:
    """How robust an image classifier really is, how sure that number is, and why."""


main.add_command(evaluate)
main.add_command(report)
main.add_command(catalogue)
main.add_command(cache)
