"""How the processes of a training find each other, as `torchrun` starts them."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from robustkit.errors import UserError

from .team import Team

_PATIENCE = timedelta(days=20)  # the others wait while the first one writes reports; a dead process is noticed at once


def several() -> bool:
    """Whether this process is one of several, by its process group or by the environment that `torchrun` sets."""
    if not dist.is_available():
        return False
    if dist.is_initialized():
        return dist.get_world_size() > 1
    numbers = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return all(text.isdecimal() for text in numbers) and int(numbers[1]) > 1 and "MASTER_ADDR" in os.environ


def own_device(device: torch.device) -> torch.device:
    """The device of this process: plain "cuda" becomes a GPU of its own.

    Raises:
        UserError: this machine has fewer GPUs than processes.
    """
    if device != torch.device("cuda") or not several():
        return device
    local, count = int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0"))), torch.cuda.device_count()
    if local >= count:
        raise UserError(
            f"There are {count} GPUs here, and at least {local + 1} processes; start one process for each GPU, or give "
            "--device cpu."
        )
    return torch.device("cuda", local)


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
