"""A comparison as two tables: models by rank with their groups, and pairs with their differences."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustkit.comparison.compare import Comparison

from ..shared.terminal import empty_table, fitting_table, plain_text, print_notes, wide_enough
from ..shared.words import in_ascii, interval, percent, printable

RANKING: Final = ("95 % interval", "k/n")
PAIRS: Final = ("95 % interval", "only first", "only second", "p (Holm)")
DROPS: Final = ((), ("k/n", "only first", "only second"), ("k/n", "only first", "only second", "p (Holm)"))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison for a human: for each threat the models by rank, then all pairs, then what it means."""
    with wide_enough(console):
        for title, ranked, pairs in threat_tables(comparison):
            console.print(fitting_table(partial(_ranking, title, ranked), RANKING, DROPS, console))
            console.print(fitting_table(partial(_pairs, pairs), PAIRS, DROPS, console))
        print_notes(console, _notes(comparison))


def comparison_text(comparison: Comparison) -> str:
    """What `print_comparison` prints, without colours, as wide as the terminal if there is one."""
    return plain_text(partial(print_comparison, comparison))


def threat_tables(comparison: Comparison) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """The name of each threat, its rows of the ranking, and its pairs."""
    for (norm, eps), ranked in comparison.ranking.groupby(["norm", "eps"], sort=True):
        own = comparison.pairs
        pairs = own[(own["norm"] == norm) & (own["eps"] == eps)]
        yield "clean" if norm == "-" else f"{norm} {ranked['eps_text'].iloc[0]}", ranked, pairs


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
    table = empty_table([])
    for name in ("first", "second"):
        table.add_column(name, overflow="fold", max_width=28)
    for name in ("difference", *shown):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", max_width=28)
    for row in pairs.to_dict("records"):
        texts = {
            "95 % interval": f"{100 * row['ci_low']:+.1f} to {100 * row['ci_high']:+.1f}",
            "only first": str(row["first_only"]), "only second": str(row["second_only"]),
            "p (Holm)": p_value(row["p_holm"]),
        }  # fmt: skip
        table.add_row(
            Text(printable(row["first"])), Text(printable(row["second"])), Text(f"{100 * row['difference']:+.1f}"),
            *(Text(texts[name]) for name in shown), Text(_verdict(row)),
        )  # fmt: skip
    return table


def _verdict(row: Mapping[Any, Any]) -> str:
    winner = {"first": row["first"], "second": row["second"]}.get(row["verdict"])
    return "not told apart" if winner is None else f"{printable(winner)} is higher"


def p_value(value: float) -> str:
    """A p-value with three decimals."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _notes(comparison: Comparison) -> Iterator[str]:
    yield (
        "difference: accuracy of the first minus the second, in points, on the same images, with Newcombe's paired "
        "95 % interval. only first, only second: images that one model alone gets right. p: McNemar's exact test, "
        "corrected by Holm for all pairs shown; below 0.05 two models are told apart. Models that share a letter in "
        "group are not."
    )
    yield from comparison.notes
