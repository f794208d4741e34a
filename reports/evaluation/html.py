"""The report of an evaluation: one HTML file that loads nothing; the same bytes for the same run.

Names of models and classes are not trusted: they are escaped, and a policy in the page forbids scripts but our own.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from robustkit.errors import UserError
from robustkit.evidence.run import Run
from robustkit.host.files import write_text

from ..shared.line_chart import Drawing, LineChart
from ..shared.rendering import render, styles
from ..shared.words import printable
from . import audit, randomized, rejection, smoothing, tables
from .answer import Answer, answer
from .attack_matrix import AttackMatrix, attack_matrix
from .board import Board, EvaluationProgress, boards
from .checklist import ChecklistItem, checklist
from .checks import CheckSummary, check_summary
from .confusion import ConfusionTables, confusion_tables
from .cost import CostBlock, RequestRow, cost_blocks, requests
from .distances import DistanceBlock, distance_blocks
from .extra_parts import ExtraPart, extra_parts
from .figures import charts
from .gallery import RULE, GalleryEntry, gallery, hero
from .manifest import Difference, ManifestLine, ModelFile, differences, entries, model_files
from .methods import joined, methods, resolution, unchecked
from .overview import Overview, overview
from .pair_rows import PairTable, pair_table
from .queries import QueryTable, query_table
from .query_figures import QueryFigure, by_queries


class RunView(NamedTuple):
    """What the page shows of one run beside its numbers."""

    name: str
    day: str  # on which it was made
    command: str
    warnings: list[str]
    manifest: list[ManifestLine]
    json: str


class Section(NamedTuple):
    """Everything that the page shows of one board."""

    prefix: str  # of the ids on the page
    note: str  # why this board cannot be compared with the first one; empty for the first
    board: Board
    resolution: str
    joined: list[str]
    unfinished: list[EvaluationProgress]
    answer: Answer
    overview: Overview
    charts: list[tuple[LineChart, list[Drawing]]]
    hero: GalleryEntry | None
    pairs: PairTable | None
    matrix: AttackMatrix | None
    confusion: ConfusionTables | None
    accuracy: list[tables.AccuracyBlock]
    distances: list[DistanceBlock]
    queries: QueryTable | None
    query_figures: list[QueryFigure]
    contributions: list[tables.ContributionBlock]
    classes: list[tables.ClassTable]
    gallery: list[GalleryEntry]
    costs: list[CostBlock]
    requests: list[RequestRow]
    certified: list[str]
    randomized: list[str]
    rejecting: list[str]
    audit: list[str]
    checks: CheckSummary
    methods: str
    unchecked: list[str]
    checklist: list[ChecklistItem]
    models: list[ModelFile]
    extra_parts: list[ExtraPart]
    runs: list[RunView]
    differences: list[Difference]


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the report of `runs` to `path`, replacing an old one in one step.

    Runs on the same images share their tables; other runs get sections of their own.

    Raises:
        UserError: there is no run, or `path` cannot be written.
    """
    if not runs:
        raise UserError("A report needs at least one run; give the folder of one.")
    write_text(path, page(runs))


def page(runs: Sequence[Run]) -> str:
    """The report of `runs` as HTML."""
    sections = [_section(board, number) for number, board in enumerate(boards(runs))]
    return render(
        "evaluation/report.html.jinja", sections=sections, style=_style(sections), data=_data(runs), rule=RULE
    )


def _style(sections: Sequence[Section]) -> str:
    files = [
        "shared/style.css",
        "evaluation/evaluation.css",
        *dict.fromkeys(part.style for section in sections for part in section.extra_parts if part.style),
    ]
    return styles(*files)


def _section(board: Board, number: int) -> Section:
    prefix, table = f"s{number}", overview(board)
    return Section(
        prefix=prefix,
        note="" if number == 0 else _not_comparable(board),
        board=board,
        resolution=resolution(board),
        joined=joined(board),
        unfinished=board.states,
        answer=answer(board),
        overview=table,
        charts=charts(board),
        hero=hero(board),
        pairs=pair_table(table),
        matrix=attack_matrix(board),
        confusion=confusion_tables(board),
        accuracy=tables.accuracy_blocks(board),
        distances=distance_blocks(board),
        queries=query_table(board),
        query_figures=by_queries(board, prefix),
        contributions=tables.contribution_blocks(board),
        classes=tables.class_tables(board),
        gallery=gallery(board),
        costs=cost_blocks(board),
        requests=requests(board),
        certified=smoothing.notes(board),
        randomized=randomized.notes(board),
        rejecting=rejection.notes(board),
        audit=audit.notes(board),
        checks=check_summary(board),
        methods=methods(board),
        unchecked=unchecked(board),
        checklist=checklist(board),
        models=model_files(board),
        extra_parts=extra_parts(board, prefix),
        runs=[_run_view(run) for run in board.runs],
        differences=differences(board.runs),
    )


def _not_comparable(board: Board) -> str:
    return (
        f"Not comparable with the section above: these runs are about {board.images.n:,} images of "
        f"{board.images.dataset} {board.images.split}, another data set, number or choice of images, or other pixels."
    )


def _run_view(run: Run) -> RunView:
    manifest, said = run.manifest, {check.sentence for check in run.checks}  # the checks' own section has these
    return RunView(
        name=printable(run.name),
        day=printable(str(manifest["created"]).partition("T")[0]),
        command=printable(str(manifest["command"])),
        warnings=[printable(str(warning)) for warning in manifest["warnings"] if warning not in said],
        manifest=entries(manifest),
        json=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
    )


def _data(runs: Sequence[Run]) -> list[dict[str, object]]:
    """The runs for tools: names, manifests and results, NaN as null."""
    return [
        {
            "folder": run.name,
            "class_names": list(run.class_names),
            "manifest": json.loads(json.dumps(run.manifest, default=str)),
            "results": _records(run.results),
        }
        for run in runs
    ]


def _is_no_json(value: object) -> bool:
    """Whether JSON has no word for it: NaN, NA, and infinity, the radius "minimum"."""
    return value is pd.NA or (isinstance(value, float) and not math.isfinite(value))


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    return [
        {str(name): None if _is_no_json(value) else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]
