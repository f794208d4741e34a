"""A finished run shown again: all rows of its table, or what happened to one image, as text in several forms."""

import json
from collections.abc import Callable
from functools import partial
from typing import Final

import pandas as pd
from rich.console import Console
from rich.text import Text

from robustkit.errors import unknown
from robustkit.evidence.rows import NO_VERDICT
from robustkit.evidence.run import RESULT_COLUMNS, SAMPLE_COLUMNS, Run
from robustkit.primitives.mask import unmasked
from robustkit.statistics.randomized_smoothing import ABSTAINS

from ..shared.csv import csv_text
from ..shared.terminal import empty_table, plain_text, wide_enough
from ..shared.words import UNKNOWN, per_image, printable
from .board import boards
from .json_form import json_rows, json_text
from .plain_tables import PlainTable, as_latex, as_markdown, caveats
from .result_rows import ResultRow, distance_text, result_rows
from .terminal import table_text

_DISTANCES: Final = {"Linf": "linf", "L2": "l2", "L1": "l1", "L0": "l0"}


def shown_table(run: Run, form: str) -> str:
    """The table of a run, or of a part of it, in one of `SHOWN_FORMS`.

    Raises:
        UserError: there is no such form.
    """
    return _form(_OF_RUNS, form)(run)


def shown_image(run: Run, rows: pd.DataFrame, form: str) -> str:
    """What happened to one image under each attack.

    Args:
        run: which the image is of.
        rows: of `Run.samples`, all of that image.
        form: one of `SHOWN_FORMS`.

    Raises:
        UserError: there is no such form.
    """
    return _form(_OF_IMAGES, form)(run, rows)


def _form(forms: "dict[str, Callable[..., str]]", name: str) -> "Callable[..., str]":
    if name not in forms:
        raise unknown("form", name, forms)
    return forms[name]


def _all_rows(run: Run) -> PlainTable:
    """Every row of the results as texts."""
    lines = [
        [row.model, str(row.threat or UNKNOWN), row.attack, row.role, *_measured(row),
         f"{row.broken} of {row.attacked}" if row.threat and row.role != "certified" else UNKNOWN,
         f"{per_image(row.forwards, row.images)}+{per_image(row.backwards, row.images)}"]
        for row in result_rows(run.results)
    ]  # fmt: skip
    identity = run.manifest["identity"]
    data = f"{identity['dataset']['name']} {identity['dataset']['split']}".strip()
    unfinished = "" if run.manifest["finished"] else " The run is unfinished."
    header = ["model", "threat", "attack", "role", "accuracy", "95 % interval", "k/n", "broke", "passes/image"]
    caption = (
        f"Accuracy on {data}, n = {identity['n']}. worst-case: classified correctly without an attack and under "
        f"every attack of the run, an upper bound on robust accuracy.{unfinished}"
    )
    return PlainTable(" ".join([caption, *caveats(boards([run])[0])]), header, lines)


def _measured(row: ResultRow) -> list[str]:
    """The accuracy, its interval and its counts; or the median distance, which is no share of images."""
    if row.threat is None or not row.threat.is_minimum:
        return [row.percent, row.interval, row.count]
    return [f"median {row.distance_text}", row.distance_interval, UNKNOWN] if row.distance_text else [UNKNOWN] * 3


def _image_table(run: Run, rows: pd.DataFrame) -> PlainTable:
    lines = [
        [printable(str(row["model"])), f"{row['norm']} {row['eps_text']}", printable(str(row["attack"])),
         str(row["verdict"]), _clean_class(run, row), _class(run, row["adv_pred"]), _distance(row),
         _whole(row["queries_to_break"]), f"{_whole(row['forwards'])}+{_whole(row['backwards'])}"]
        for row in rows.to_dict("records")
    ]  # fmt: skip
    first = rows.iloc[0]
    identity = run.manifest["identity"]["dataset"]
    header = ["model", "threat", "attack", "verdict", "clean", "attacked", "distance", "queries", "passes"]
    caption = (
        f"Image {int(first['sample'])} of {printable(identity['name'])} {printable(identity['split'])}".strip()
        + f", class {_class(run, first['label'])}. clean, attacked: the classes that the model gives. distance: of the "
        "attacked point, in the norm of the threat (Linf where that is none). queries: of the trial (start or target) "
        "that broke the image."
    )
    return PlainTable(caption, header, lines)


def _clean_class(run: Run, row: "dict[object, object]") -> str:
    return UNKNOWN if row["verdict"] == NO_VERDICT else _class(run, row["clean_pred"])


def _class(run: Run, number: object) -> str:
    if pd.isna(number):  # type: ignore[call-overload]
        return UNKNOWN
    label = int(str(number))
    if label == ABSTAINS:
        return "no class"
    return printable(run.class_names[label]) if 0 <= label < len(run.class_names) else str(label)


def _distance(row: "dict[object, object]") -> str:
    value = row.get(_DISTANCES.get(unmasked(str(row["norm"])), "linf"))
    return UNKNOWN if pd.isna(value) else distance_text(float(str(value)))  # type: ignore[call-overload]


def _whole(value: object) -> str:
    return UNKNOWN if pd.isna(value) else str(int(str(value)))  # type: ignore[call-overload]


def _drawn(run: Run, rows: pd.DataFrame) -> str:
    return plain_text(partial(_print, _image_table(run, rows)))


def _print(table: PlainTable, console: Console) -> None:
    with wide_enough(console):
        drawn = empty_table([table.caption.partition(".")[0]])
        for number, name in enumerate(table.header):
            drawn.add_column(name, overflow="fold", justify="right" if number > 5 else "left")
        for line in table.lines:
            drawn.add_row(*(Text(text) for text in line))
        console.print(drawn)
        console.print(Text(table.caption.partition(". ")[2]))


def _image_json(run: Run, rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    content = {
        "format": "robustkit-image", "version": 1, "run": run.name, "image": int(first["sample"]),
        "label": int(first["label"]), "class_names": list(run.class_names),
        "dataset": run.manifest["identity"]["dataset"], "rows": json_rows(rows),
    }  # fmt: skip
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


_OF_RUNS: Final[dict[str, Callable[[Run], str]]] = {
    "table": table_text,
    "csv": lambda run: csv_text(run.results, RESULT_COLUMNS),
    "json": lambda run: json_text([run]),
    "markdown": lambda run: as_markdown(_all_rows(run)),
    "latex": lambda run: as_latex(_all_rows(run)),
}
_OF_IMAGES: Final[dict[str, Callable[[Run, pd.DataFrame], str]]] = {
    "table": _drawn,
    "csv": lambda run, rows: csv_text(rows, SAMPLE_COLUMNS),
    "json": _image_json,
    "markdown": lambda run, rows: as_markdown(_image_table(run, rows)),
    "latex": lambda run, rows: as_latex(_image_table(run, rows)),
}
SHOWN_FORMS: Final = tuple(_OF_RUNS)
