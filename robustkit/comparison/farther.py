"""Which models have their nearest errors farther away: paired tests of runs with the radius "minimum"."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pandas as pd

from robustkit.evidence.distances import distance_by_image
from robustkit.statistics.paired import holm
from robustkit.statistics.paired_distances import DistanceTest, sign_test

from .contestants import Contestant, check_same_images

COLUMNS = (
    *("norm", "first", "second", "n", "first_farther", "second_farther", "difference", "ci_low", "ci_high"),
    *("p", "p_holm", "verdict"),
)


def farther(models: Sequence[Contestant], level: float, alike: str) -> pd.DataFrame:
    """A row for each norm and pair of models that measured distances, with the columns COLUMNS.

    Args:
        models: of all runs.
        level: of all tests of the table together.
        alike: the verdict where two models do not differ significantly.
    """
    tests = list(_tests(models))
    corrected = holm([test.p for *_, test in tests])
    rows = []
    for (norm, first, second, test), p in zip(tests, corrected, strict=True):
        better = "first" if test.first_farther > test.second_farther else "second"
        rows.append({
            "norm": norm, "first": first, "second": second, "n": test.n, "first_farther": test.first_farther,
            "second_farther": test.second_farther, "difference": test.difference, "ci_low": test.low,
            "ci_high": test.high, "p": test.p, "p_holm": p, "verdict": better if p < level else alike,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _tests(models: Sequence[Contestant]) -> Iterator[tuple[str, str, str, DistanceTest]]:
    for norm in sorted({norm for each in models for norm in each.measured}):
        for first, second in combinations([each for each in models if norm in each.measured], 2):
            check_same_images(first, second)
            one, two = (distance_by_image(each.run.samples, each.model, norm) for each in (first, second))
            one, two = one.align(two, join="inner")
            yield norm, first.name, second.name, sign_test(one.to_numpy(dtype=float), two.to_numpy(dtype=float))
