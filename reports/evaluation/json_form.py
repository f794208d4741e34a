"""Runs as JSON for other programs: the table with its intervals, threat models, data, and the whole manifest.

`report.schema.json` beside this file describes it. Numbers are exact; what JSON has no number for is null where it is
unknown, and "infinity" where there is no radius, or no adversarial example is known.
"""

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

import pandas as pd

from robustkit.evidence.run import Run
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import norm_name, radius

from ..shared.words import in_plain_words

FORMAT: Final = "robustkit-report"
VERSION: Final = 1  # increased whenever a program that read the last version would misread this one


def json_text(runs: Sequence[Run]) -> str:
    """The JSON of some runs, in ASCII, the same bytes for the same evidence."""
    content = {"format": FORMAT, "version": VERSION, "runs": [_run(run) for run in runs]}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `json_text`."""
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("report.schema.json").read_text("utf-8"))
    return found


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them."""
    return [{str(key): json_value(value) for key, value in row.items()} for row in frame.to_dict("records")]


def json_value(value: Any) -> Any:
    """A value as JSON has it; nested ones too."""
    if isinstance(value, Mapping):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(inner) for inner in value]
    if value is None or value is pd.NA:
        return None
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else "infinity" if plain > 0 else "-infinity"
    return plain


def _run(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    identity = manifest["identity"]
    return {
        "name": run.name,
        **{key: manifest[key] for key in ("robustkit", "created", "finished", "command", "warnings")},
        "dataset": {**identity["dataset"], "images": identity["n"], "class_names": list(run.class_names)},
        "seed": identity["seed"],
        "models": json_value(identity["models"]),
        "threats": [threat_entry(norm, eps_text, identity.get("masks", {})) for norm, eps_text in identity["threats"]],
        "attacks": json_value(identity["attacks"]),
        "requests": json_value(manifest.get("requests", {})),
        "results": json_rows(run.results),
        "manifest": json_value(manifest),
    }


def threat_entry(norm: str, eps_text: str, masks: Mapping[str, str]) -> dict[str, Any]:
    """A threat model by its numbers, and in words."""
    plain = unmasked(norm)
    mask = masks.get(norm.removeprefix(plain).removeprefix("-in-"))
    eps = json_value(radius(norm_name(plain), eps_text))
    return {"norm": norm, "eps": eps, "eps_text": eps_text, "mask": mask, "words": in_plain_words(norm, eps_text)}
