"""A run's two tables and its pictures, computed from the evidence of a store.

Only what inputs and seed determine goes in, so two equal runs give equal bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from robustkit.checks.check import Check
from robustkit.checks.register import checks_of, warnings_of
from robustkit.evidence.audit import AUDIT
from robustkit.evidence.carried import carried_pictures
from robustkit.evidence.certificates import certified_images, certified_samples, contradictions
from robustkit.evidence.checked import level_of, model_facts, note_on, witnesses_of
from robustkit.evidence.column_file import ColumnFile
from robustkit.evidence.corruptions import (
    CORRUPTION_COLUMNS,
    IMAGE_COLUMNS,
    Verdicts,
    corruption_means,
    corruption_rows,
    different_pictures,
    image_rows,
)
from robustkit.evidence.distances import COLUMNS as DISTANCE_COLUMNS
from robustkit.evidence.distances import distance_extras
from robustkit.evidence.failed import ERRORS, error_parts, error_warnings, of_other_images, with_errors
from robustkit.evidence.model_evidence import ModelEvidence, columns_of, read_evidence, records_under
from robustkit.evidence.parts import Part, known
from robustkit.evidence.picture import Picture
from robustkit.evidence.pictures import load_pictures
from robustkit.evidence.queries import QUERY_COLUMNS
from robustkit.evidence.results import clean_row, result_row, threat_rows
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.run import RESULT_COLUMNS, SAMPLE_COLUMNS, Run
from robustkit.evidence.sample_rows import SampleRows
from robustkit.evidence.samples import audit_part, sample_parts
from robustkit.evidence.single_draws import (
    DRAW_COLUMN,
    RESULT_EXTRAS,
    sample_extras,
    threat_extras,
    union_extras,
)
from robustkit.evidence.stopped import with_sequences
from robustkit.evidence.store import Store
from robustkit.evidence.stored_corruptions import corrupted_verdicts
from robustkit.evidence.union import ThreatEvidence, members, union_row
from robustkit.primitives.threat import is_minimum, radius_under

Rows = list[dict[str, Any]]


@dataclass
class Tables:
    """What the models of a run add to its tables, one after the other."""

    results: Rows = field(default_factory=list)
    samples: list[Part] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    clean: dict[str, Mapping[int, CleanRecord]] = field(default_factory=dict)  # by model
    corrupted: dict[str, Verdicts] = field(default_factory=dict)  # by model
    failed: dict[str, int] = field(default_factory=dict)  # images without a verdict, by model
    corrupted_images: list[tuple[str | int, ...]] = field(default_factory=list)


def summarised(store: Store, folder: Path) -> Run:
    """The run in `store`, as values."""
    manifest = store.manifest()
    identity, pictures, tables, file = manifest["identity"], load_pictures(store), Tables(), ColumnFile()
    witnesses = witnesses_of(pictures)
    for entry in identity["models"]:
        model, places = read_evidence(store, identity, manifest, entry)
        found = checks_of(model_facts(store, identity, manifest, level_of(manifest), model, witnesses))
        tables.clean[model.name], tables.failed[model.name] = model.clean, len(model.failed)
        tables.pictures += [
            each for each in carried_pictures(pictures, model.name, places) if each.sample not in model.failed
        ]
        verdicts = corrupted_verdicts(store, model.name) if "corruptions" in identity else {}
        tables.corrupted[model.name] = {key: of_other_images(own, model.failed) for key, own in verdicts.items()}
        images = image_rows(identity.get("corruptions"), store, model.name, model.clean)
        tables.corrupted_images += [row for row in images if row[2] not in model.failed]
        tables.results += _results(model, identity, found, tables.corrupted[model.name])
        tables.samples += file.moved(_samples(model, identity))
        tables.checks += found
        tables.warnings += [*_warnings(model, identity), *warnings_of(found, manifest["warnings"])]
    tables.warnings += different_pictures(store) if len(tables.clean) > 1 and "corruptions" in identity else []
    means = corruption_means(
        identity.get("corruptions"), tables.corrupted, tables.clean, manifest.get("corruption_baseline"), tables.failed
    )
    data = {"dataset": identity["dataset"]["name"], "split": identity["dataset"]["split"]}
    return Run(
        folder=folder,
        manifest=manifest | {"warnings": list(dict.fromkeys([*manifest["warnings"], *tables.warnings]))},
        results=_frame([{**row, **data} for row in tables.results], RESULT_COLUMNS, _further(tables.results, manifest)),
        sample_rows=SampleRows(tables.samples, [*SAMPLE_COLUMNS, *_measured(tables.samples, manifest)], file),
        pictures=sorted(tables.pictures, key=lambda one: (one.model, one.norm, one.eps_text, one.attack, one.sample)),
        class_names=tuple(identity["class_names"]),
        corruptions=_frame([{**row, **data} for row in means], CORRUPTION_COLUMNS, []),
        checks=tuple(tables.checks),
        corrupted=pd.DataFrame(tables.corrupted_images, columns=[*IMAGE_COLUMNS]),
    )


def _results(model: ModelEvidence, identity: Mapping[str, Any], found: Sequence[Check], corrupted: Verdicts) -> Rows:
    """The rows of one model in the results."""
    expected = identity["n"] - len(model.failed)
    waiting = max(0, expected - len(model.clean))
    attacks = _attacks(identity)
    own: Rows = [
        {"model": model.name, **clean_row(model.clean, model.smoothing, waiting, model.draws, rejects=model.rejects)}
    ]
    for threat in _threats(identity):
        own += [{"model": model.name, **threat, **row} for row in _threat_results(model, threat, attacks, waiting)]
    own = [{**row, **note_on(row, found)} for row in own]
    own += _union(model, identity["threats"], attacks, waiting, own)
    for row in corruption_rows(identity.get("corruptions"), corrupted, expected):
        own.append({"model": model.name, **row})
    return with_errors(with_sequences(own, identity, waiting), identity, model.failed, waiting)


def _samples(model: ModelEvidence, identity: Mapping[str, Any]) -> list[Part]:
    """The rows of one model in the samples."""
    attacks = _attacks(identity)
    return [
        {"model": model.name, **threat, **part}
        for threat in _threats(identity)
        for part in _threat_samples(model, threat, attacks)
    ]


def _attacks(identity: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each ensemble its members, for each other attack its own name; without the audit."""
    return {
        column: names for column, names in columns_of(identity).items() if column != AUDIT or "audit" not in identity
    }


def _threats(identity: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"norm": norm, "eps": radius_under(norm, eps_text), "eps_text": eps_text}
        for norm, eps_text in identity["threats"]
    ]


def _further(results: Rows, manifest: Mapping[str, Any]) -> list[str]:
    """The columns that only some runs have in the results."""
    identity, randomized = manifest["identity"], bool(manifest.get("randomized"))
    return [
        *(["abstained"] if _smoothed(identity) or randomized or _rejecting(identity) else []),
        *(["undecided"] if any(row["undecided"] for row in results) else []),
        *([ERRORS] if any(ERRORS in row for row in results) else []),
        *(["note"] if any("note" in row for row in results) else []),
        *(RESULT_EXTRAS if randomized else ()),
        *(DISTANCE_COLUMNS if any(is_minimum(eps_text) for _, eps_text in identity["threats"]) else ()),
    ]


def _measured(samples: Sequence[Part], manifest: Mapping[str, Any]) -> list[str]:
    """The columns that only some runs have in the samples."""
    return [
        *(["radius"] if _smoothed(manifest["identity"]) else []),
        *([DRAW_COLUMN] if manifest.get("randomized") else []),
        *(name for name in QUERY_COLUMNS if known(samples, name)),
    ]


def _smoothed(identity: Mapping[str, Any]) -> bool:
    return any("smoothing" in entry for entry in identity["models"])


def _rejecting(identity: Mapping[str, Any]) -> bool:
    return any(entry.get("rejects") for entry in identity["models"])


def _warnings(model: ModelEvidence, identity: Mapping[str, Any]) -> list[str]:
    warnings = error_warnings(model.name, model.failed)
    if model.smoothing is not None:
        attacked = model.attacked.values()
        warnings += contradictions(model.name, model.smoothing, model.clean, model.certificates, attacked)
    if "audit" in identity and model.draws is not None:
        warnings.append(f"{model.name} is randomized, for which AutoAttack is not made; it is not audited.")
    return warnings


def _threat_results(
    model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]], waiting: int
) -> Rows:
    audit = model.audits.get((threat["norm"], threat["eps_text"]))
    records = records_under(model, threat, groups)
    rows = threat_rows(model.clean, groups, records, waiting, audit)
    if model.smoothing is not None:
        images = certified_images(model.clean, model.certificates, threat["norm"], threat["eps"])
        rows.append(result_row("certified", "certified", len(model.clean), len(images), waiting=waiting))
    if is_minimum(threat["eps_text"]):
        rows = distance_extras(threat["norm"], rows, groups, records, model.clean.correct)
    if model.draws is not None:
        return threat_extras(model.draws, rows, groups, threat["norm"], threat["eps_text"])
    return rows


def _union(
    model: ModelEvidence, threats: Sequence[Sequence[str]], groups: Mapping[str, Sequence[str]], waiting: int, own: Rows
) -> Rows:
    """The row about all threats together, with the note of any of them; none if there is one norm."""
    parts = members(threats)
    if not parts:
        return []
    keys = [(norm, eps_text) for norm, eps_text in threats if not is_minimum(eps_text)]
    evidence = [
        ThreatEvidence(
            records_under(model, {"norm": norm, "eps_text": eps_text}, groups), model.audits.get((norm, eps_text))
        )
        for norm, eps_text in keys
    ]
    notes = [{"note": row["note"]} for row in own if "note" in row and not is_minimum(row["eps_text"])]
    row = union_row(model.clean, evidence, parts, waiting)
    extras = {} if model.draws is None else union_extras(model.draws, groups, keys)
    return [{"model": model.name, **row, **extras, **(notes[0] if notes else {})}]


def _threat_samples(model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> list[Part]:
    records = records_under(model, threat, groups)
    parts = [part for column, names in groups.items() for part in sample_parts(model.clean, column, names, records)]
    parts = [{**part, **_queries(model, threat, part)} for part in parts]
    audit = model.audits.get((threat["norm"], threat["eps_text"]))
    parts += [] if audit is None else [audit_part(model.clean, audit)]
    if model.smoothing is not None:
        parts.append(certified_samples(model.clean, model.certificates, threat["norm"], threat["eps"]))
    if model.draws is not None:
        parts = sample_extras(model.draws, parts, groups, threat["norm"], threat["eps_text"])
    return parts + error_parts(groups, model.failed)


def _queries(model: ModelEvidence, threat: Mapping[str, Any], part: Part) -> Part:
    """The queries of the images of one attack; nothing of an attack that counts none."""
    found = model.queried.get((threat["norm"], threat["eps_text"], part["attack"]))
    if not found:
        return {}
    rows = [found.get(number) for number in part["sample"].tolist()]
    return {
        name: np.array([math.nan if row is None else getattr(row, name) for row in rows], kind)
        for name, kind in zip(QUERY_COLUMNS, (float, object), strict=True)
    }


def _frame(rows: Rows, columns: Sequence[str], further: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[*columns, *further])
    # Whole numbers stay whole although some rows have none.
    whole = [name for name in further if name in ("abstained", ERRORS)]
    return frame.astype(dict.fromkeys(whole, "Int64")) if whole else frame
