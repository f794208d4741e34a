"""Options given twice: click takes the last one without a word, so that a radius was lost."""

from collections import Counter

import click

from robustkit.errors import UserError


def refuse_repeated(command: click.Command, words: list[str], ctx: click.Context) -> None:
    """Check that no option of one value occurs twice among a command's words; flags may.

    Raises:
        UserError: one does.
    """
    with click.Context(command, parent=ctx) as context:
        _, _, given = command.make_parser(context).parse_args(list(words))
    for option, count in Counter(given).items():
        if count > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count):
            raise UserError(
                f"{max(option.opts, key=len)} is given {count} times, and takes one value; leave out the rest."
            )
