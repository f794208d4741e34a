"""The global generators that a model may draw from: seeded, and looked at."""

import random
from functools import cache
from typing import Any

import numpy as np
import torch


def reseed(seed: int) -> None:
    """Seed all global generators that a model may draw from; `isolation.untouched` restores them."""
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # models draw from numpy's global generator, if from any


def seed_torch(seed: int) -> None:
    """Seed torch's global generators; those of accelerators on a machine that has one."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        # torch.manual_seed formats the stack three times, for accelerators that may come later: 0.1 ms or more.
        torch.default_generator.manual_seed(seed)


@cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def generator_states() -> list[Any]:
    """Values that change whenever a random number is drawn from a global generator of the CPU or of a CUDA device."""
    name, numbers, *place = np.random.get_state()
    # Asked too early, CUDA would be initialised on every device.
    accelerated = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    torches = [state.numpy().tobytes() for state in (torch.get_rng_state(), *accelerated)]
    return [*torches, random.getstate(), name, np.asarray(numbers).tobytes(), *place]
