"""The command line: one module for each command."""

import os
import sys
from typing import Any, NoReturn

import click

import robustkit
from robustkit.errors import UserError

from .ablate import ablate
from .cache import cache
from .catalogue import catalogue
from .diagnose import diagnose
from .evaluate import evaluate
from .failure import print_error
from .finetune import finetune
from .report import report
from .trace import trace

# Threads of GNU's OpenMP wait in a busy loop: on two busy cores a resnet18 step took 7 times as long (0.29 s against
# 0.04 s). With this bound it takes 3.5 times as long there, and 5 % longer on idle cores. torch reads the variable when
# it loads; a value that the user has set stays.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


class Commands(click.Group):
    """A group that turns errors of the user into one line and exit status 2."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command line. Any other exception is a bug of ours and keeps its traceback."""
        kwargs["standalone_mode"] = False
        try:
            status = super().main(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(2)
        except click.ClickException as error:
            _fail(error.format_message())
        except UserError as error:
            _fail(str(error))
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted.", err=True)
            sys.exit(130)
        except BrokenPipeError:
            # The reader of the pipe has ended; without this, Python prints a second error at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> NoReturn:
    print_error(message)
    sys.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(robustkit.__version__, prog_name="robustkit")
def main() -> None:
    """How robust an image classifier really is, how sure that number is, and why."""


main.add_command(evaluate)
main.add_command(diagnose)
main.add_command(finetune)
main.add_command(report)
main.add_command(trace)
main.add_command(catalogue)
main.add_command(cache)
main.add_command(ablate)
