"""One command in several processes, as `torchrun` starts them: the first speaks and writes, the others help it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from robustkit.errors import UserError

from .failure import complain


@contextmanager
def together(device: str) -> Iterator[Any]:
    """The team of all processes while the context lasts; an error of one ends all with status 2 and one line.

    Args:
        device: as on the command line; "auto" and "cuda" are a GPU for each process.

    Raises:
        UserError: the only process there is met it.
    """
    from robustkit.host.environment import chosen_device

    processes = import_module("robustkit.defenses.training.processes")
    with processes.processes(processes.own_device(chosen_device(device))) as team:
        try:
            with team.fail_together():
                yield team
        except UserError as error:
            if team.alone:
                raise
            if team.first:
                complain(str(error))
            # Whoever ends first is noticed by torchrun, which ends the others: only after that line.
            team.wait_for_others()
            sys.exit(2)
