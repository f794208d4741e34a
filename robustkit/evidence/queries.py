"""What attacks without gradients reach within a number of queries: images broken, or the nearest error's distance."""

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import pandas as pd

from robustkit.errors import UserError
from robustkit.primitives.mask import unmasked
from robustkit.primitives.queries import CHECKPOINTS
from robustkit.primitives.threat import MINIMUM
from robustkit.statistics.intervals import proportion
from robustkit.statistics.medians import median

QUERY_COLUMNS: Final = ("queries", "distances")  # of `Run.samples`
CURVE_COLUMNS: Final = (
    *("model", "norm", "eps", "eps_text", "attack", "queries", "n", "broken", "success_rate", "ci_low", "ci_high"),
    *("median_distance", "distance_low", "distance_high"),
)


def curve(samples: pd.DataFrame, queries: Sequence[int] | None = None) -> pd.DataFrame:
    """Success, or the median distance, against queries: one row per model x radius x attack x number of queries.

    Args:
        samples: `Run.samples`.
        queries: numbers of queries; None takes 1, 2, 5, 10, 20, 50 and so on, as far as the attack goes.

    Returns:
        The columns CURVE_COLUMNS, about the n correctly classified images that have a verdict. At a radius: how many
        were broken within so many queries, with a 95 % interval. Without one: the median distance of the nearest error
        after so many queries, with a 95 % interval, infinity where half of the images or more have no known error.
        Columns of the other kind are NaN. Queries count over all restarts and target classes of an image. An image that
        was broken at a smaller radius counts with the queries that it took there.

    Raises:
        UserError: the run has no attack whose queries were counted.
    """
    if "queries" not in samples or samples["queries"].isna().all():
        raise UserError("The run has no attack without gradients, such as square or hopskipjump; add one with -a.")
    own = samples[samples["queries"].notna()]
    keys = ["model", "norm", "eps", "eps_text", "attack"]
    rows = [
        {**dict(zip(keys, key, strict=True)), "queries": int(mark), "n": len(group), **_reached(group, int(mark))}
        for key, group in own.groupby(keys, sort=False)
        for mark in (checkpoints(int(group["queries"].max())) if queries is None else queries)
    ]
    return pd.DataFrame(rows, columns=[*CURVE_COLUMNS])


def checkpoints(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 and so on, up to the first that is at least `most`."""
    return [*takewhile(lambda mark: mark < most, CHECKPOINTS), next(mark for mark in CHECKPOINTS if mark >= most)]


def _reached(group: pd.DataFrame, mark: int) -> dict[str, Any]:
    """What one attack reached on its images within `mark` queries."""
    rows = group.to_dict("records")
    if group["eps_text"].iloc[0] == MINIMUM:
        norm = unmasked(str(group["norm"].iloc[0])).lower()
        found = median([_distance(row, norm, mark) for row in rows])
        return {"median_distance": found.value, "distance_low": found.low, "distance_high": found.high}
    broken = sum(row["verdict"] == "broken" and row["queries"] <= mark for row in rows)
    share = proportion(broken, len(rows))
    return {"broken": broken, "success_rate": share.value, "ci_low": share.low, "ci_high": share.high}


def _distance(row: Mapping[Hashable, Any], norm: str, mark: int) -> float:
    """The distance of the nearest error of an image after `mark` queries."""
    if row["verdict"] != "broken":
        return math.inf
    if row["queries"] <= mark:
        return float(row[norm])
    pairs = [pair.split(":") for pair in str(row["distances"]).split()]
    return next((float(distance) for count, distance in reversed(pairs) if int(count) <= mark), math.inf)
