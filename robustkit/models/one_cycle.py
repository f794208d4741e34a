"""The one-cycle learning rate. Smith & Topin 2018, arXiv:1708.07120."""

import math


def one_cycle(warmup: float, share: float) -> float:
    """The learning rate after a share of the steps, as a share of the largest.

    It rises from 1/25 over the share `warmup` of the steps, then falls to 0, both along cosines. torch's own scheduler
    divides by zero for some short trainings.
    """
    if share < warmup:
        low, risen = 1 / 25, share / warmup
        return low + (1 - low) * (1 - math.cos(math.pi * risen)) / 2
    fallen = (share - warmup) / (1 - warmup) if warmup < 1 else 0.0
    return (1 + math.cos(math.pi * fallen)) / 2
