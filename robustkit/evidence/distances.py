"""What a run says about distances: how far away the nearest error is, per attack and over all of them."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustkit.checks.attack_columns import AttackColumns
from robustkit.errors import UserError
from robustkit.evidence.rows import NO_VERDICT
from robustkit.host.arguments import checked_arguments
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import MINIMUM
from robustkit.statistics.bootstrap import mean_bca
from robustkit.statistics.intervals import proportion
from robustkit.statistics.medians import median

COLUMNS: Final = ("median_distance", "distance_low", "distance_high")
_POINTS = 51  # of a curve whose radii nobody gave


def nearest(norm: str, rows: AttackColumns) -> dict[int, float]:
    """By image the smallest distance of an error."""
    errors = rows.rows_where(rows.success > 0)
    images, places = np.unique(errors.sample, return_inverse=True)
    distances = np.full(len(images), math.inf)
    np.minimum.at(distances, places, getattr(errors, unmasked(norm).lower()))
    return dict(zip(images.tolist(), distances.tolist(), strict=True))


def distance_extras(
    norm: str, rows: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]],
    records: Mapping[str, AttackColumns], correct: Collection[int],
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of a threat, with the median distance over all correctly classified images.

    Images of which no error is known count as infinitely far.
    """
    names = {**groups, "worst-case": [name for members in groups.values() for name in members]}
    extended = []
    for row in rows:
        members = names.get(row["attack"], [row["attack"]])
        found = nearest(norm, AttackColumns.joined(records[name] for name in members if name in records))
        values = median([found.get(number, math.inf) for number in correct])
        extended.append({**row, **dict(zip(COLUMNS, values, strict=True))})
    return extended


def curve(samples: pd.DataFrame, radii: Sequence[float] | None = None) -> pd.DataFrame:
    """Accuracy against the radius: one row per model x norm x attack x radius, and "worst-case" for all attacks.

    Args:
        samples: `Run.samples` of a run with the radius "minimum".
        radii: None takes 51, from zero to the largest distance.

    Returns:
        The columns model, norm, attack, radius, n, correct, accuracy, ci_low, ci_high. An image counts as correct at a
        radius if it is classified correctly and no error is known as near as that: an upper bound, as any robust
        accuracy. One without a verdict does not, and `ci_high` is that of all of those being correct.

    Raises:
        UserError: the run did not look for distances, or `radii` is no list of numbers from zero up.
    """
    given = None if radii is None else _checked(radii)
    rows: list[dict[str, Any]] = []
    for (model, norm), group in _measured(samples).groupby(["model", "norm"], sort=False):
        errors = group.loc[group["verdict"] == NO_VERDICT, "sample"].nunique()
        by_attack = _by_attack(group)
        known = group["distance"][np.isfinite(group["distance"])]
        chosen = np.linspace(0, known.max() if len(known) else 1.0, _POINTS) if given is None else given
        for attack, distances in by_attack.items():
            n, clean_wrong = len(distances), int((distances == 0).sum())
            for radius in chosen.tolist():
                correct = n - max(int((distances <= radius).sum()), clean_wrong)
                share, most = proportion(correct, n), proportion(correct + errors, n)
                rows.append({"model": model, "norm": norm, "attack": attack, "radius": radius, "n": n,
                             "correct": correct, "accuracy": share.value, "ci_low": share.low,
                             "ci_high": most.high})  # fmt: skip
    return pd.DataFrame(rows)


@checked_arguments
def area(samples: pd.DataFrame, limit: float | None = None) -> pd.DataFrame:
    """The mean accuracy over all radii from 0 to a limit: one row per model x norm x attack, and "worst-case".

    It is the area under `curve`, divided by the limit, and so the mean over images of the distance of the nearest
    error, cut at the limit, as a share of it; an upper bound, as any robust accuracy.

    Args:
        samples: `Run.samples` of a run with the radius "minimum".
        limit: a radius; None takes the largest distance that is known in each norm. For two runs, give the same one.

    Returns:
        The columns model, norm, attack, limit, n, area, ci_low, ci_high: a BCa bootstrap interval over images.

    Raises:
        UserError: the run did not look for distances, or the limit is not a positive number.
    """
    if limit is not None and not 0 < limit < math.inf:
        raise UserError(f"The limit of an area is a positive radius, not {limit!r}.")
    rows: list[dict[str, Any]] = []
    for norm, group in _measured(samples).groupby("norm", sort=False):
        known = group["distance"][np.isfinite(group["distance"])]
        largest = limit or float(known.max() if len(known) else 0.0) or 1.0
        for model, own in group.groupby("model", sort=False):
            failed = own["verdict"] == NO_VERDICT
            hopeful = _by_attack(own.assign(distance=own["distance"].mask(failed, math.inf)))
            for attack, distances in _by_attack(own).items():
                found = mean_bca(_cut(distances, largest))
                most = mean_bca(_cut(hopeful[attack], largest)) if failed.any() else found
                rows.append({"model": model, "norm": norm, "attack": attack, "limit": largest, "n": len(distances),
                             "area": found.value, "ci_low": found.low, "ci_high": most.high})  # fmt: skip
    return pd.DataFrame(rows)


def distance_by_image(samples: pd.DataFrame, model: str, norm: str) -> "pd.Series[float]":
    """The distance of the nearest error of each image, over all attacks; 0 where clean wrong, infinite if unknown.

    Without the images that have no verdict.
    """
    mine = (samples["model"] == model) & (samples["norm"] == norm) & (samples["verdict"] != NO_VERDICT)
    own = _measured(samples[mine])
    return own.groupby("sample")["distance"].min()


def _measured(samples: pd.DataFrame) -> pd.DataFrame:
    """The rows without a radius, with the column `distance`."""
    own = samples[samples["eps_text"] == MINIMUM]
    if own.empty:
        raise UserError("The run has no distances; evaluate with the radius 'minimum' (--eps minimum).")
    parts = []
    for norm, group in own.groupby("norm", sort=False):
        distance = group[unmasked(str(norm)).lower()].astype(float).where(group["verdict"] == "broken", math.inf)
        parts.append(group.assign(distance=distance.where(~group["verdict"].isin(["clean-wrong", NO_VERDICT]), 0.0)))
    return pd.concat(parts)


def _cut(distances: "pd.Series[float]", largest: float) -> NDArray[np.float64]:
    """The distances as shares of the largest that counts."""
    return np.minimum(distances.to_numpy(), largest) / largest


def _by_attack(group: pd.DataFrame) -> "dict[str, pd.Series[float]]":
    """The distances of one model in one norm, by attack, and of the nearest error of all."""
    found = {str(name): part["distance"] for name, part in group.groupby("attack", sort=False)}
    return {**found, "worst-case": group.groupby("sample")["distance"].min()}


def _checked(radii: Sequence[float]) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(radii, dtype=float)
    except (TypeError, ValueError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not len(numbers) or not (numbers >= 0).all():
        raise UserError("The radii of a curve are a list of numbers of at least 0, such as [0.1, 0.2].")
    return numbers
