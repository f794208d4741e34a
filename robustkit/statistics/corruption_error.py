"""Corruption errors relative to a baseline model: CE, mCE and relative mCE.

Hendrycks & Dietterich 2019, arXiv:1903.12261, section 4. All numbers here are shares; papers print them times 100.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

# The mean of 4/59, 3/59 and 2/59 can be more than 3/59 as a float; images make no difference so small.
_ROUNDING: Final = 1e-12


class MeanErrors(NamedTuple):
    """Errors of one model: on clean images, if that is known, and by corruption, the mean over severities."""

    clean: float | None
    corrupted: Mapping[str, float]


class CorruptionErrors(NamedTuple):
    """Errors of a model divided by those of a baseline."""

    by_corruption: dict[str, float]
    relative: dict[str, float]  # of the errors minus the clean error; empty if one of these is unknown
    mean: float  # mCE
    relative_mean: float | None


def corruption_errors(model: MeanErrors, baseline: MeanErrors) -> CorruptionErrors | None:
    """CE of each corruption that both have, and their means; None if they have none in common.

    A corruption on which the baseline makes no error, or none more than on clean images, has no (relative) CE and is
    left out of the mean.
    """
    common = [name for name in model.corrupted if baseline.corrupted.get(name, 0) > 0]
    if not common:
        return None
    errors = {name: model.corrupted[name] / baseline.corrupted[name] for name in common}
    relative: dict[str, float] = {}
    if model.clean is not None and baseline.clean is not None:
        more = {name: baseline.corrupted[name] - baseline.clean for name in common}
        relative = {
            name: (model.corrupted[name] - model.clean) / more[name] for name in common if more[name] > _ROUNDING
        }
    relative_mean = sum(relative.values()) / len(relative) if relative else None
    return CorruptionErrors(errors, relative, sum(errors.values()) / len(errors), relative_mean)
