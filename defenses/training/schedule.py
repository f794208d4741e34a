"""Learning rate and radius as functions of the share of a training that is done."""

from robustkit.models.one_cycle import one_cycle

from .recipe import Schedule


def rate(schedule: Schedule, warmup: float, share: float) -> float:
    """The learning rate, in units of the largest, after a share of all steps.

    Args:
        schedule: "onecycle" and "cosine" end at 0 along a cosine (`one_cycle`); "piecewise" falls to a tenth after half
            and again after three quarters; "flat" is constant.
        warmup: share in which it rises: for "onecycle" from 1/25 of the largest along a cosine, else linearly from 0.
        share: 0 at the first step, below 1 at the last.
    """
    if schedule == "onecycle":
        return one_cycle(warmup, share)
    if share < warmup:
        return share / warmup
    if schedule == "cosine":
        return one_cycle(warmup, share)
    fallen = (share - warmup) / (1 - warmup) if warmup < 1 else 0.0
    if schedule == "piecewise":
        return 1.0 if fallen < 0.5 else 0.1 if fallen < 0.75 else 0.01
    return 1.0


def radius_share(warmup: float, share: float) -> float:
    """The radius, in units of the full one: linear from 0 over the first `warmup` of all steps."""
    return 1.0 if share >= warmup else share / warmup
