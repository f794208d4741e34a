import re

import click
import pytest

from robustkit.cli import SECTIONS, main
from robustkit.cli.help_sections import _SECTIONS

MANY = ["evaluate", "corruptions", "attack", "universal", "diagnose", "trace", "finetune", "ablate", "verify"]


def longest(command: click.Command) -> list[str]:
    """The long form of each option."""
    options = [option for option in command.get_params(click.Context(command)) if isinstance(option, click.Option)]
    return [max(option.opts, key=len) for option in options]


@pytest.mark.parametrize("name", MANY)
def test_help_lists_each_option_once(name):
    command = main.commands[name]
    lines = command.get_help(click.Context(command)).splitlines()
    rows = [line.strip() for line in lines if line.startswith("  -")]  # of wrapped texts no line begins so

    for option in longest(command):
        assert sum(option in re.split(r",? ", row.split("  ")[0]) for row in rows) == 1, option


def test_every_name_in_a_section_is_an_option():
    given = {option for command in main.commands.values() for option in longest(command)}

    assert {f"--{name}" for names in _SECTIONS.values() for name in names} <= given


def test_the_list_of_commands_has_each_of_them_on_one_line_of_80_columns():
    lines = main.get_help(click.Context(main, terminal_width=80)).splitlines()

    for commands in SECTIONS.values():
        for command, summary in commands.items():
            assert [line.split()[0] for line in lines if line.endswith(summary)] == [command.name]
