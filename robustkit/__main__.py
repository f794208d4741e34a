"""`robustkit` and `python -m robustkit`: the command line in a process of its own."""

import sys
from typing import NoReturn

from robustkit.host.interrupt import ignore_interrupts, interrupted, watch_interrupts


def start() -> NoReturn:
    """Run the command line; Ctrl-C ends it with status 130 and one line, also during the imports."""
    watch_interrupts()
    try:
        from robustkit.cli import main

        main(prog_name="robustkit")
    except BaseException as error:
        ignore_interrupts()
        if isinstance(error, SystemExit) or not interrupted():
            raise
    sys.stderr.write("Interrupted.\n")
    sys.exit(130)


if __name__ == "__main__":
    start()
