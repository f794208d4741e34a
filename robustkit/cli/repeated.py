"""Options given twice, of which click takes the last one without a word."""

from collections import Counter

import click

from robustkit.errors import UserError

from .help_sections import HelpInSections


class OneValueEach(HelpInSections):
    """A command that refuses a second value of an option of one value; flags may be repeated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command's words.

        Raises:
            UserError: an option of one value occurs twice.
        """
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for option, count in Counter(given).items():
                if count > 1 and isinstance(option, click.Option) and not _repeatable(option):
                    raise UserError(
                        f"{max(option.opts, key=len)} is given {count} times, and takes one value; leave out the rest."
                    )
        return super().parse_args(ctx, args)


def _repeatable(option: click.Option) -> bool:
    return option.multiple or option.is_flag or option.count
