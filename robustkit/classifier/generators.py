"""The global generators that a model may draw from: seeded, and looked at."""

import random
from typing import Any

import numpy as np
import torch


def reseed(seed: int) -> None:
    """Seed all global generators that a model may draw from; `isolation.untouched` restores them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # models draw from numpy's global generator, if from any


def generator_states() -> list[Any]:
    """Values that change whenever a random number is drawn from a global generator of the CPU or of a CUDA device."""
    name, numbers, *place = np.random.get_state()
    # Asked too early, CUDA would be initialised on every device.
    accelerated = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    torches = [state.numpy().tobytes() for state in (torch.get_rng_state(), *accelerated)]
    return [*torches, random.getstate(), name, np.asarray(numbers).tobytes(), *place]
