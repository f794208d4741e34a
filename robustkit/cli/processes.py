"""One command in several processes, started by `torchrun`: only the first prints and writes files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from robustkit.errors import UserError

from .terminal import print_error

if TYPE_CHECKING:
    from .wings import defenses


@contextmanager
def process_team(device: str) -> Iterator["defenses.Team"]:
    """The team of all processes. A user's error in one of them ends all with status 2 and one line.

    Args:
        device: as on the command line; with "auto" and "cuda" each process gets a GPU.

    Raises:
        UserError: if there is only one process, its own.
    """
    from robustkit.host.environment import chosen_device
    from robustkit.host.processes import own_device

    from .wings import defenses

    with defenses.processes(own_device(chosen_device(device))) as team:
        try:
            with team.fail_together():
                yield team
        except UserError as error:
            if team.alone:
                raise
            if team.first:
                print_error(str(error))
            # torchrun ends all processes as soon as one ends: wait until the first has printed its line.
            team.wait_for_others()
            sys.exit(2)
