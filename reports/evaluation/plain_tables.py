"""A run's headline table as Markdown or LaTeX: models by threats, each accuracy with its interval.

Names of models are not trusted: everything that either language would interpret is escaped.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from robustkit.evidence.run import Run
from robustkit.evidence.union import UNION
from robustkit.host.files import MARK

from ..shared.words import UNKNOWN, printable
from . import rejection
from .board import Board, boards
from .checks import check_summary
from .result_rows import ResultRow

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&-])")
_LATEX: Final = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\symbol{34}", "`": r"\textasciigrave{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "[": "{[}", "*": "{*}",  # the end of the row before would read them as its own
    "\N{EN DASH}": "--", "\N{LESS-THAN OR EQUAL TO}": r"$\leq$", "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
}  # fmt: skip


class PlainTable(NamedTuple):
    """One table as texts, unescaped."""

    caption: str
    header: list[str]
    lines: list[list[str]]


def markdown(runs: Sequence[Run]) -> str:
    """A table in GitHub's Markdown for each set of images, with its caption below it."""
    return "\n".join([f"<!-- {MARK} -->\n", *(as_markdown(table) for table in _tables(runs))])


def latex(runs: Sequence[Run]) -> str:
    """A `table` environment for each set of images; it needs the package booktabs."""
    return "\n".join([f"% {MARK}", *(as_latex(table) for table in _tables(runs))])


def _tables(runs: Sequence[Run]) -> Iterator[PlainTable]:
    for board in boards(runs):
        columns: list[tuple[str, Callable[[str], ResultRow | None]]] = [("clean", board.clean)]
        columns += [(str(threat), partial(board.worst, threat=threat)) for threat in board.threats]
        columns += [(f"{threat.norm} distance", partial(board.worst, threat=threat)) for threat in board.minimums]
        columns += [(UNION, board.union)] if any(map(board.union, board.models)) else []
        lines = [[model, *(_cell(row_of(model)) for _, row_of in columns)] for model in board.models]
        yield PlainTable(_caption(board), ["model", *(name for name, _ in columns)], lines)


def _cell(row: ResultRow | None) -> str:
    if row is None:
        return UNKNOWN
    if row.threat is not None and row.threat.is_minimum:
        return f"{row.distance_text} ({row.distance_interval})" if row.distance_text else UNKNOWN
    interval = row.interval.removesuffix(" %")
    return f"{row.percent} ({interval})"


def _caption(board: Board) -> str:
    images, under = board.images, _attacks(board)
    words = [f"at a radius the worst case{under}, an upper bound on robust accuracy"] if board.threats else []
    if board.minimums:
        words.append(f"distance: median of the nearest adversarial example found{under}, an upper bound")
    unfinished = " At least one run is unfinished." if board.states else ""
    return " ".join([
        f"Accuracy on {f'{images.dataset} {images.split}'.strip()}, n = {images.n}, in brackets 95 % intervals"
        f"{''.join(f'; {text}' for text in words)}.{unfinished}",
        *caveats(board),
    ])  # fmt: skip


def caveats(board: Board) -> list[str]:
    """Sentences without which the accuracies of a table mislead: what rejections count as, and what is not reliable."""
    return [*(text[0].upper() + text[1:] for text in rejection.notes(board)), *check_summary(board).unreliable]


def _attacks(board: Board) -> str:
    """What the models were attacked by; of each model, if that differs."""
    by_model: dict[str, dict[str, None]] = {model: {} for model in board.models}
    for run, names in zip(board.runs, board.names, strict=True):
        attacks = [str(entry["name"]).partition("/")[0] for entry in run.manifest["identity"]["attacks"]]
        for name in names.values():
            by_model[name].update(dict.fromkeys(attacks))
    texts = {model: ", ".join(attacks) for model, attacks in by_model.items() if attacks}
    if len(set(texts.values())) > 1:
        return f" under {'; '.join(f'{text} ({model})' for model, text in texts.items())}"
    return "".join(f" under {text}" for text in set(texts.values()))


def as_markdown(table: PlainTable) -> str:
    """The table in GitHub's Markdown, with its caption below it."""
    rows = [table.header, ["---", *["---:"] * (len(table.header) - 1)], *table.lines]
    escaped = [row if row[0] == "---" else [in_markdown(text) for text in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([*lines, "", in_markdown(table.caption), ""])


def as_latex(table: PlainTable) -> str:
    """The table as a `table` environment of booktabs."""
    rows = [" & ".join(map(_in_latex, row)) + r" \\" for row in (table.header, *table.lines)]
    return "\n".join([
        r"\begin{table}", r"  \centering", f"  \\caption{{{_in_latex(table.caption)}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}", r"    \toprule", f"    {rows[0]}", r"    \midrule",
        *(f"    {row}" for row in rows[1:]), r"    \bottomrule", r"  \end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def in_markdown(text: str) -> str:
    """A text in which Markdown interprets nothing, in one line."""
    # A dash within a word needs no backslash, and would not be read as easily.
    return _MARKDOWN.sub(r"\\\1", printable(text)).replace(r"\-", "-").replace(r"\(", "(").replace(r"\)", ")")


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in printable(text))
