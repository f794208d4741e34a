"""The command line: one module for each command."""

import os
import sys
from typing import Any, NoReturn

import click

import robustkit

from .ablate import ablate
from .attack import attack
from .cache import cache
from .catalogue import catalogue
from .compare import compare
from .corruptions import corruptions
from .diagnose import diagnose
from .evaluate import evaluate
from .finetune import finetune
from .gate import gate
from .merge import merge
from .report import report
from .selftest import selftest
from .show import show
from .status import status_of
from .terminal import safe_streams
from .trace import trace
from .universal import universal
from .verify import verify

# Threads of GNU's OpenMP wait in a busy loop: on two busy cores a resnet18 step took 7 times as long (0.29 s against
# 0.04 s). With this bound it takes 3.5 times as long there, and 5 % longer on idle cores. torch reads the variable when
# it loads; a value that the user has set stays.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


class Commands(click.Group):
    """A group whose commands end with one line and a status, whatever happens in them."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command line."""
        kwargs["standalone_mode"] = False
        with safe_streams():
            status = status_of(lambda: super(Commands, self).main(*args, **kwargs))
        sys.exit(status)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(robustkit.__version__, prog_name="robustkit")
def main() -> None:
    """How robust an image classifier really is, how sure that number is, and why."""


main.add_command(evaluate)
main.add_command(attack)
main.add_command(universal)
main.add_command(corruptions)
main.add_command(diagnose)
main.add_command(finetune)
main.add_command(report)
main.add_command(show)
main.add_command(trace)
main.add_command(catalogue)
main.add_command(cache)
main.add_command(ablate)
main.add_command(compare)
main.add_command(merge)
main.add_command(gate)
main.add_command(verify)
main.add_command(selftest)
