"""A run's two tables and its pictures, computed from the evidence of a store.

Only what inputs and seed determine goes in, so two equal runs give equal bytes.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from robustkit.checks.check import Check
from robustkit.checks.register import checks_of, warnings_of
from robustkit.evidence.audit import AUDIT
from robustkit.evidence.carried import Origins, carried_pictures
from robustkit.evidence.certificates import certified_images, certified_rows, contradictions
from robustkit.evidence.checked import level_of, model_facts, note_on, witnesses_of
from robustkit.evidence.corruptions import (
    CORRUPTION_COLUMNS,
    Verdicts,
    corruption_means,
    corruption_rows,
    different_pictures,
)
from robustkit.evidence.distances import COLUMNS as DISTANCE_COLUMNS
from robustkit.evidence.distances import distance_extras
from robustkit.evidence.model_evidence import ModelEvidence, columns_of, read_evidence, records_under
from robustkit.evidence.pictures import load_pictures
from robustkit.evidence.queries import QUERY_COLUMNS
from robustkit.evidence.results import clean_row, result_row, threat_rows
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.run import RESULT_COLUMNS, SAMPLE_COLUMNS, Run
from robustkit.evidence.samples import audit_samples, sample_rows
from robustkit.evidence.single_draws import (
    DRAW_COLUMN,
    RESULT_EXTRAS,
    sample_extras,
    threat_extras,
    union_extras,
)
from robustkit.evidence.stopped import with_sequences
from robustkit.evidence.store import Store
from robustkit.evidence.union import ThreatEvidence, members, union_row
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import is_minimum, norm_name, radius

# Whole numbers that some rows do not have.
_WHOLE = ["adv_pred", "question", "restart", "target", "l0", "forwards", "backwards"]

_SAMPLED = (*SAMPLE_COLUMNS, "radius", DRAW_COLUMN, *QUERY_COLUMNS)  # all that a row of samples may have

Rows = list[dict[str, Any]]


def summarised(store: Store, folder: Path) -> Run:
    """The run in `store`, as values."""
    manifest = store.manifest()
    identity = manifest["identity"]
    groups = columns_of(identity)
    attacks = {column: names for column, names in groups.items() if column != AUDIT or "audit" not in identity}
    results: Rows = []
    samples: list[tuple[Any, ...]] = []  # the columns _SAMPLED: as dicts, half a million rows take a gigabyte
    warnings: list[str] = []
    checks: list[Check] = []
    level, pictures = level_of(manifest), load_pictures(store)
    witnesses = witnesses_of(pictures)
    places: dict[str, Origins] = {}
    described = identity.get("corruptions")
    corrupted: dict[str, Verdicts] = {}
    clean: dict[str, Mapping[int, CleanRecord]] = {}
    for entry in identity["models"]:
        model, places[str(entry["name"])] = read_evidence(store, identity, manifest, entry)
        waiting = max(0, identity["n"] - len(model.clean))
        warnings += _warnings(model)
        if "audit" in identity and model.draws is not None:
            warnings.append(f"{model.name} is randomized, for which AutoAttack is not made; it is not audited.")
        own: Rows = [{"model": model.name, **clean_row(model.clean, model.smoothing, waiting, model.draws)}]
        found = checks_of(model_facts(store, identity, level, model, witnesses))
        for norm, eps_text in identity["threats"]:
            threat = {"norm": norm, "eps": radius(norm_name(unmasked(norm)), eps_text), "eps_text": eps_text}
            rows = _threat_results(model, threat, attacks, waiting)
            own += [{"model": model.name, **threat, **row} for row in rows]
            named = ({"model": model.name, **threat, **row} for row in _threat_samples(model, threat, attacks))
            samples += [tuple(row.get(name, math.nan) for name in _SAMPLED) for row in named]
        own = [{**row, **note_on(row, found)} for row in own]
        own += _union(model, identity["threats"], attacks, waiting, own)
        clean[model.name] = model.clean
        corrupted[model.name] = store.corrupted_verdicts(model.name) if described else {}
        for row in corruption_rows(described, corrupted[model.name], identity["n"]):
            own.append({"model": model.name, **row})
        warnings += warnings_of(found, manifest["warnings"])
        results += with_sequences(own, identity, waiting)
        checks += found
    warnings += different_pictures(store) if len(corrupted) > 1 else []
    means = corruption_means(described, corrupted, clean, manifest.get("corruption_baseline"))
    data = {"dataset": identity["dataset"]["name"], "split": identity["dataset"]["split"]}
    smoothed = any("smoothing" in entry for entry in identity["models"])
    randomized = bool(manifest.get("randomized"))
    further = [
        *(["abstained"] if smoothed or randomized else []),
        *(["undecided"] if any(row["undecided"] for row in results) else []),
        *(["note"] if any("note" in row for row in results) else []),
        *(RESULT_EXTRAS if randomized else ()),
        *(DISTANCE_COLUMNS if any(is_minimum(eps_text) for _, eps_text in identity["threats"]) else ()),
    ]
    measured = [
        *(["radius"] if smoothed else []),
        *([DRAW_COLUMN] if randomized else []),
        *(name for name in QUERY_COLUMNS if any(_known(row[_SAMPLED.index(name)]) for row in samples)),
    ]
    whole = [*_WHOLE, *(name for name in measured if name == "queries")]
    return Run(
        folder=folder,
        manifest=manifest | {"warnings": list(dict.fromkeys([*manifest["warnings"], *warnings]))},
        results=_frame([{**row, **data} for row in results], RESULT_COLUMNS, further, []),
        samples=pd.DataFrame(samples, columns=[*_SAMPLED])[[*SAMPLE_COLUMNS, *measured]].astype(
            dict.fromkeys(whole, "Int64")
        ),
        pictures=carried_pictures(pictures, places),
        class_names=tuple(identity["class_names"]),
        corruptions=_frame([{**row, **data} for row in means], CORRUPTION_COLUMNS, [], []),
        checks=tuple(checks),
    )


def _known(value: Any) -> bool:
    """Whether a row has a value that is neither missing nor empty."""
    return bool(value) and value == value


def _warnings(model: ModelEvidence) -> list[str]:
    if model.smoothing is None:
        return []
    records = [record for records in model.attacked.values() for record in records]
    return contradictions(model.name, model.smoothing, model.clean, model.certificates, records)


def _threat_results(
    model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]], waiting: int
) -> Rows:
    audit = model.audits.get((threat["norm"], threat["eps_text"]))
    rows = threat_rows(model.clean, groups, records_under(model, threat, groups), waiting, audit)
    if model.smoothing is not None:
        images = certified_images(model.clean, model.certificates, threat["norm"], threat["eps"])
        rows.append(result_row("certified", "certified", len(model.clean), len(images), [], 0, waiting))
    if is_minimum(threat["eps_text"]):
        correct = [number for number, row in model.clean.items() if row.pred == row.label]
        rows = distance_extras(threat["norm"], rows, groups, records_under(model, threat, groups), correct)
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


def _threat_samples(model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> Rows:
    records = records_under(model, threat, groups)
    rows = [row for column, names in groups.items() for row in sample_rows(model.clean, column, names, records)]
    for row in rows:
        found = model.queried.get((threat["norm"], threat["eps_text"], row["attack"]), {}).get(row["sample"])
        row.update({} if found is None else {name: getattr(found, name) for name in QUERY_COLUMNS})
    audit = model.audits.get((threat["norm"], threat["eps_text"]))
    rows += [] if audit is None else audit_samples(model.clean, audit)
    if model.smoothing is not None:
        rows += certified_rows(model.clean, model.certificates, threat["norm"], threat["eps"])
    if model.draws is not None:
        return sample_extras(model.draws, rows, groups, threat["norm"], threat["eps_text"])
    return rows


def _frame(rows: Rows, columns: Sequence[str], further: Sequence[str], whole: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[*columns, *further])
    # Whole numbers stay whole although some rows have none.
    return frame.astype(dict.fromkeys([*whole, *(name for name in further if name == "abstained")], "Int64"))
