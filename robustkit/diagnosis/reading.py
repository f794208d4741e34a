"""Reads a diagnosis from its JSON file, for reports."""

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from robustkit.errors import UserError

from .calls import Unseen
from .diagnosis import Diagnosis
from .lines import OpSite
from .proof import Proof
from .record import EndToEnd, LayerRow
from .remedies import Prescription


def read_diagnosis(path: Path) -> Diagnosis:
    """The diagnosis that `Diagnosis.to_json` wrote into a file.

    Raises:
        UserError: the file cannot be read, or is not a diagnosis.
    """
    try:
        return _read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path} is no diagnosis of robustkit; run robustkit diagnose again, or remove the file."
        ) from None


def _read(data: dict[str, Any]) -> Diagnosis:
    rows = tuple(LayerRow(**{**_numbers(LayerRow, row), "shape": tuple(row["shape"])}) for row in data["rows"])
    by_call = {(row.layer, row.call): row for row in rows}
    names = {field.name for field in fields(Diagnosis)}
    return Diagnosis(**{
        **{key: value for key, value in data.items() if key in names},
        "rows": rows,
        "causes": tuple(by_call[row["layer"], row["call"]] for row in data["causes"]),
        "source": tuple(OpSite(**site) for site in data["source"]),
        "prescription": tuple(Prescription(**each) for each in data["prescription"]),
        "proof": None if data["proof"] is None else Proof(**data["proof"]),
        "whole": EndToEnd(**_numbers(EndToEnd, data["whole"])),
        "unseen": tuple(Unseen(**each) for each in data["unseen"]),
        "notes": tuple(data["notes"]),
    })  # fmt: skip


def _numbers(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """NaN for null in the fields of floats, because JSON has no NaN."""
    floats = {field.name for field in fields(kind) if field.type is float}
    return {key: math.nan if value is None and key in floats else value for key, value in values.items()}
