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


# In the order in which they are needed, each with a line that fits into 80 columns.
SECTIONS: dict[str, dict[click.Command, str]] = {
    "Evaluate": {
        evaluate: "Accuracy under attack, as a table, CSV and HTML.",
        corruptions: "Accuracy under noise, blur, weather and compression.",
        attack: "Write adversarial examples of image files.",
        universal: "Find one perturbation for all images.",
    },
    "Explain": {
        diagnose: "Find the layer that masks gradients, and prove it by an attack.",
        trace: "Show layer by layer where a perturbation grows.",
    },
    "Improve": {
        finetune: "Train a model on adversarial examples.",
        ablate: "Find out which training choice helps.",
    },
    "Finished runs": {
        show: "Print the table again, or the results of one image.",
        report: "Write the page again, or LaTeX, Markdown, JSON, a card.",
        compare: "Test which models differ, on the same images.",
        gate: "Fail a build if robustness is too low.",
        verify: "Check every number against the evidence.",
        merge: "Join the folders of several runs into one.",
    },
    "This machine": {
        catalogue: "List attacks, models or data sets.",
        cache: "List or delete models that were trained here.",
        selftest: "Try the automatic checks on models that must fail them.",
    },
}


class Commands(click.Group):
    """A group whose commands end with one line and a status, whatever happens in them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        widest = max(map(len, self.commands))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name).ljust(widest), line) for each, line in commands.items()])

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


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
