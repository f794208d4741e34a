"""Whether this process is one of several that `torchrun` started for one command, and which GPU is its own."""

import os

import torch
import torch.distributed as dist

from robustkit.errors import UserError


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
