"""Which models classify more corrupted images correctly: paired tests on the same pictures."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import pandas as pd

from robustkit.statistics.paired import holm
from robustkit.statistics.paired_shares import ShareTest, share_test

from .contestants import Contestant, check_same_images

COLUMNS = (
    *("corruption", "first", "second", "n", "first_better", "second_better", "difference", "ci_low", "ci_high"),
    *("p", "p_holm", "verdict"),
)


class CorruptionPair(NamedTuple):
    """Two models under one corruption, or under all of them."""

    corruption: str
    first: str
    second: str
    test: ShareTest


def corrupted_pairs(models: Sequence[Contestant], level: float, alike: str) -> pd.DataFrame:
    """A row for each corruption, "all" among them, and pair of models that met the same ones, with COLUMNS.

    Args:
        models: of all runs.
        level: of all tests of the table together.
        alike: the verdict where two models do not differ significantly.
    """
    pairs = [each for one in _pairs(models) for each in paired_tests(*one)]
    corrected = holm([each.test.p for each in pairs])
    rows = []
    for (name, first, second, test), p in zip(pairs, corrected, strict=True):
        better = "first" if test.difference > 0 else "second"
        rows.append({
            "corruption": name, "first": first, "second": second, "n": test.n, "first_better": test.first_better,
            "second_better": test.second_better, "difference": test.difference, "ci_low": test.low,
            "ci_high": test.high, "p": test.p, "p_holm": p, "verdict": better if p < level else alike,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*COLUMNS])


def paired_tests(first: Contestant, second: Contestant, *, first_is_lower: bool = False) -> Iterator[CorruptionPair]:
    """The tests of two models: of each corruption that both met at the same severities, and of all of them."""
    for name in [each for each in first.corruption_names if each in second.corruption_names]:
        one, two = (each.corruption_counts(name).set_index("sample") for each in (first, second))
        shared = one.index.intersection(two.index)
        counts = [part.loc[shared, "correct"].to_numpy() for part in (one, two)]
        versions = int(one["severities"].max())
        test = share_test(counts[0], counts[1], versions, first_is_lower=first_is_lower)
        yield CorruptionPair(name, first.name, second.name, test)


def other_corruptions(first: Contestant, second: Contestant) -> str:
    """Why the corruptions of two models cannot be compared; empty if they can."""
    one, two = (each.run.manifest["identity"]["corruptions"] for each in (first, second))
    if any(sorted(one[key]) != sorted(two[key]) for key in ("names", "severities")):
        return "other corruptions or severities"
    counts = [each.corruption_counts(first.corruption_names[-1]).set_index("sample") for each in (first, second)]
    shared = counts[0].index.intersection(counts[1].index)
    pixels = [part.loc[shared, "pixels"] for part in counts]
    return "" if len(shared) and pixels[0].equals(pixels[1]) else "other images"


def corruption_notes(models: Sequence[Contestant]) -> Iterator[str]:
    """A sentence for each pair of models whose corrupted images are not compared."""
    for first, second in combinations([each for each in models if each.corruption_names], 2):
        if why := other_corruptions(first, second):
            yield (
                f"{first.name} and {second.name} are not compared on corrupted images: they were judged on {why}. "
                "Evaluate both with the same corruptions, severities and seed."
            )


def _pairs(models: Sequence[Contestant]) -> Iterator[tuple[Contestant, Contestant]]:
    for first, second in combinations([each for each in models if each.corruption_names], 2):
        check_same_images(first, second)
        if not other_corruptions(first, second):
            yield first, second
