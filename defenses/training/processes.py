"""How the processes of a training find each other, as `torchrun` starts them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from robustkit.errors import UserError
from robustkit.host.processes import several

from .team import Team

_PATIENCE = timedelta(days=20)  # the others wait while the first one writes reports; a dead process is noticed at once


@contextmanager
def processes(device: torch.device) -> Iterator[Team]:
    """The team of all processes, connected while the context lasts; a single process is a team too.

    Args:
        device: of this process's network.

    Raises:
        UserError: they cannot connect, or two share a GPU.
    """
    if not several():
        yield Team(device=device)
        return
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        connects = not dist.is_initialized()
        if connects:
            _connect(device)
        # A group of our own: the caller's may support only nccl and time out earlier.
        control: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
        stack.callback(dist.destroy_process_group, None if connects else control)
        team = Team(dist.get_rank(), dist.get_world_size(), device, control)
        team.check_devices()
        yield team


def _connect(device: torch.device) -> None:
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"The processes cannot connect ({reason}); start them with torchrun --nproc-per-node N."
        ) from None
