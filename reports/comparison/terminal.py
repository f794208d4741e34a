"""A comparison as two tables: models by rank with their groups, and pairs with their differences."""

import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustkit.comparison.compare import Comparison
from robustkit.evidence.corruptions import ALL
from robustkit.evidence.union import UNION

from ..shared.terminal import empty_table, fitting, fitting_table, plain_text, print_notes, wide_enough
from ..shared.words import in_ascii, interval, p_value, percent, printable

RANKING: Final = ("95 % interval", "k/n")
PAIRS: Final = ("95 % interval", "only first", "only second", "p (Holm)")
CORRUPTIONS: Final = ("95 % interval", "better", "p (Holm)")
CORRUPTION_DROPS: Final = ((), ("better",), ("better", "p (Holm)"))
DISTANCES: Final = ("95 % interval", "farther", "p (Holm)")
DISTANCE_DROPS: Final = ((), ("farther",), ("farther", "p (Holm)"))
DROPS: Final = ((), ("k/n", "only first", "only second"), ("k/n", "only first", "only second", "p (Holm)"))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison for a human: for each threat the models by rank, then all pairs, then what it means."""
    shown: set[str] = set()
    with wide_enough(console):
        for title, ranked, pairs in threat_tables(comparison):
            console.print(fitting_table(partial(_ranking, title, ranked), RANKING, DROPS, console))
            table, columns = fitting(partial(_pairs, pairs), PAIRS, DROPS, console)
            console.print(table)
            shown.update(columns)
        for norm, rows in () if comparison.distances.empty else comparison.distances.groupby("norm", sort=False):
            table, columns = fitting(partial(_distances, str(norm), rows), DISTANCES, DISTANCE_DROPS, console)
            console.print(table)
            shown.update(columns)
        if not comparison.corruptions.empty:
            rows = of_all(comparison.corruptions)
            table, columns = fitting(partial(_corruptions, rows), CORRUPTIONS, CORRUPTION_DROPS, console)
            console.print(table)
            shown.update(columns)
        print_notes(console, _notes(comparison, shown))


def comparison_text(comparison: Comparison) -> str:
    """What `print_comparison` prints, without colours, as wide as the terminal if there is one."""
    return plain_text(partial(print_comparison, comparison))


def threat_tables(comparison: Comparison) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """The name of each threat, its rows of the ranking, and its pairs."""
    ranking, pairs = (frame.assign(key=_keys(frame)) for frame in (comparison.ranking, comparison.pairs))
    for key, ranked in ranking.groupby("key", sort=False):
        norm, text = str(ranked["norm"].iloc[0]), str(ranked["eps_text"].iloc[0])
        yield "clean" if norm == "-" else f"{norm} {text}", ranked, pairs[pairs["key"] == key]


def _keys(frame: pd.DataFrame) -> "pd.Series[str]":
    """The threat of each row: a norm with its radius, which runs may write differently, or the text of a union."""
    radii = frame["eps"].map(repr).where(frame["norm"] != UNION, frame["eps_text"])
    return frame["norm"] + " " + radii


def _ranking(title: str, ranked: pd.DataFrame, shown: list[str]) -> Table:
    table = empty_table([title])
    table.add_column("model", overflow="fold", max_width=40)
    for name in ("accuracy", *shown, "group"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in ranked.to_dict("records"):
        k, n = row["correct"], row["n"]
        texts = {"95 % interval": in_ascii(interval(row["ci_low"], row["ci_high"], k, n)), "k/n": f"{k}/{n}"}
        table.add_row(
            Text(printable(row["model"])), Text(percent(k, n)), *(Text(texts[name]) for name in shown),
            Text(row["group"]),
        )  # fmt: skip
    return table


def _pairs(pairs: pd.DataFrame, shown: list[str]) -> Table:
    table = _empty_pairs([], shown)
    for row in pairs.to_dict("records"):
        texts = {
            "95 % interval": f"{100 * row['ci_low']:+.1f} to {100 * row['ci_high']:+.1f}",
            "only first": str(row["first_only"]), "only second": str(row["second_only"]),
            "p (Holm)": p_value(row["p_holm"]),
        }  # fmt: skip
        _add_pair(table, row, f"{100 * row['difference']:+.1f}", [texts[name] for name in shown], _verdict(row))
    return table


def _distances(norm: str, rows: pd.DataFrame, shown: list[str]) -> Table:
    table = _empty_pairs([f"{norm} distance of the nearest adversarial example"], shown)
    for row in rows.to_dict("records"):
        texts = {
            "95 % interval": f"{length_text(row['ci_low'])} to {length_text(row['ci_high'])}",
            "farther": f"{row['first_farther']} : {row['second_farther']}", "p (Holm)": p_value(row["p_holm"]),
        }  # fmt: skip
        verdict = _verdict(row, "farther")
        _add_pair(table, row, length_text(row["difference"]), [texts[name] for name in shown], verdict)
    return table


def of_all(corruptions: pd.DataFrame) -> pd.DataFrame:
    """The rows about all corruptions together; those of the only corruption where there is one."""
    whole = corruptions[corruptions["corruption"] == ALL]
    return whole if len(whole) else corruptions


def _corruptions(rows: pd.DataFrame, shown: list[str]) -> Table:
    names = rows["corruption"].unique()
    title = "all corruptions" if ALL in names else ", ".join(printable(str(name)) for name in names)
    table = _empty_pairs(["corrupted images", title], shown)
    for row in rows.to_dict("records"):
        texts = {
            "95 % interval": f"{100 * row['ci_low']:+.1f} to {100 * row['ci_high']:+.1f}",
            "better": f"{row['first_better']} : {row['second_better']}", "p (Holm)": p_value(row["p_holm"]),
        }  # fmt: skip
        _add_pair(table, row, f"{100 * row['difference']:+.1f}", [texts[name] for name in shown], _verdict(row))
    return table


def _empty_pairs(title: list[str], shown: list[str]) -> Table:
    """A table of pairs of models, with the columns between their difference and the verdict."""
    table = empty_table(title)
    for name in ("first", "second"):
        table.add_column(name, overflow="fold", max_width=28)
    for name in ("difference", *shown):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", max_width=28)
    return table


def _add_pair(table: Table, row: Mapping[Any, Any], difference: str, texts: list[str], verdict: str) -> None:
    names = printable(row["first"]), printable(row["second"])
    table.add_row(*(Text(text) for text in (*names, difference, *texts, verdict)))


def length_text(value: float) -> str:
    """A signed difference of distances; "unknown" where an adversarial example is not known."""
    return f"{value:+.3g}" if math.isfinite(value) else "unknown"


def _verdict(row: Mapping[Any, Any], word: str = "higher") -> str:
    winner = {"first": row["first"], "second": row["second"]}.get(row["verdict"])
    return "no significant difference" if winner is None else f"{printable(winner)} is {word}"


def _notes(comparison: Comparison, shown: AbstractSet[str]) -> Iterator[str]:
    """What the numbers mean; a column that was left out takes its note along."""
    yield (
        "difference: accuracy of the first minus the second, in points, on the same images, with Newcombe's paired "
        "95 % interval."
    )
    if "only first" in shown:
        yield "only first, only second: images that one model alone gets right."
    p = "p: McNemar's" if "p (Holm)" in shown else "verdict: McNemar's"
    yield (
        f"{p} exact test, corrected by Holm for all pairs shown; below 0.05 a difference is significant. Models that "
        "share a letter in group do not differ significantly."
    )
    if len(comparison.distances):
        yield (
            "distance: median over images of the first minus the second, 95 % interval between order statistics; an "
            "image that is wrong without an attack has the distance 0. unknown: no adversarial example is known there."
        )
        if "farther" in shown:
            yield (
                "farther: images whose nearest adversarial example is farther for the first, and for the second; exact "
                "sign test."
            )
    if len(comparison.corruptions):
        yield (
            "corrupted images: mean share of the corrupted versions of an image that are classified correctly, first "
            "minus second, in points; exact sign-flip test over images, Holm's correction over all corruptions."
        )
        if "better" in shown:
            yield "better: images of which the first gets more versions right, and the second."
    yield from comparison.notes
