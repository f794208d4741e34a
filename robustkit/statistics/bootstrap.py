"""BCa bootstrap intervals for means of skewed values, such as areas under curves: the same bytes every time.

Efron 1987, "Better bootstrap confidence intervals", JASA 82:171. The resampled rows are a function of the number of a
resample and of a draw (SplitMix64, Steele et al. 2014), not of a generator's state, so they are equal in every version
of numpy. scipy.stats.bootstrap is the oracle in the tests.

Medians are not bootstrapped: the sign test's interval (`medians`) is exact, also where values are unknown.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 9_999
_AT_ONCE: Final = 1 << 22  # drawn rows in memory together; does not change a bit
_STATE: Final = 0x626F6F747374726A  # any constant works, but it must never change

Floats = NDArray[np.float64]


class BootstrapInterval(NamedTuple):
    """A mean with its interval; NaN of no values."""

    value: float
    low: float
    high: float


def mean_bca(values: Floats, level: float = 0.95, resamples: int = RESAMPLES) -> BootstrapInterval:
    """The mean of `[n]` values with its bias-corrected and accelerated interval; of equal values, that value alone.

    Raises:
        ValueError: a value is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("A mean needs finite values; cut them at a limit first.")
    if not len(values):
        return BootstrapInterval(math.nan, math.nan, math.nan)
    value = float(values.mean())
    if (values == values[0]).all():
        return BootstrapInterval(value, value, value)
    means = np.sort(resampled_means(values, resamples))
    low, high = _levels(values, means, level)
    return BootstrapInterval(value, *(float(np.quantile(means, each)) for each in (low, high)))


def resampled_means(values: Floats, resamples: int) -> Floats:
    """`[resamples]` means of as many rows as there are, drawn with replacement."""
    n = len(values)
    size = max(1, _AT_ONCE // n)
    parts = (range(start, min(start + size, resamples)) for start in range(0, resamples, size))
    return np.concatenate([values[_rows(part, n)].mean(axis=1) for part in parts])


def _levels(values: Floats, means: Floats, level: float) -> tuple[float, float]:
    """The two quantiles of the resampled means that are the ends of the interval."""
    from scipy.stats import norm

    n, mean = len(values), values.mean()
    # Ties count half, as in scipy.
    below = ((means < mean).sum() + (means <= mean).sum()) / (2 * len(means))
    bias = norm.ppf(below)
    # The jackknife's means of all values but one, minus their mean.
    influence = (values - mean) / (n - 1)
    acceleration = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
    shifted = bias + norm.ppf((1 - level) / 2), bias + norm.ppf((1 + level) / 2)
    low, high = (float(norm.cdf(bias + each / (1 - acceleration * each))) for each in shifted)
    return low, high


def _rows(part: range, n: int) -> NDArray[np.int64]:
    """`[len(part), n]` row numbers, of the resamples with these numbers."""
    first = np.arange(part.start, part.stop, dtype=np.uint64)[:, None] * np.uint64(n)
    z: NDArray[np.uint64] = np.add(first, np.arange(1, n + 1, dtype=np.uint64), dtype=np.uint64)
    z = np.add(z * np.uint64(0x9E3779B97F4A7C15), np.uint64(_STATE), dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    high = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
    # The high 32 bits times n: no bias that n images could show.
    return ((high * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
