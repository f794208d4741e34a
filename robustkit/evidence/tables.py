"""A run's two tables and its pictures, computed from the evidence of a store.

Only what inputs and seed determine goes in, so two equal runs give equal bytes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustkit.evidence import masking_signs, misled
from robustkit.evidence.audit import AUDIT, Audit, audit_of, counted
from robustkit.evidence.carried import Origins, carried_pictures, carried_queries, carried_records, origins
from robustkit.evidence.certificates import certified_images, certified_rows, contradictions
from robustkit.evidence.corruptions import (
    CORRUPTION_COLUMNS,
    Verdicts,
    corruption_means,
    corruption_rows,
    different_pictures,
)
from robustkit.evidence.distances import COLUMNS as DISTANCE_COLUMNS
from robustkit.evidence.distances import distance_extras
from robustkit.evidence.guessing import NOTE, guessing
from robustkit.evidence.opening import not_ours
from robustkit.evidence.pictures import load_pictures
from robustkit.evidence.queries import QUERY_COLUMNS
from robustkit.evidence.results import clean_row, result_row, threat_rows
from robustkit.evidence.run import RESULT_COLUMNS, SAMPLE_COLUMNS, Run
from robustkit.evidence.samples import audit_samples, sample_rows
from robustkit.evidence.single_draws import (
    DRAW_COLUMN,
    RESULT_EXTRAS,
    SingleDraws,
    sample_extras,
    single_draws,
    threat_extras,
    union_extras,
)
from robustkit.evidence.stopped import with_sequences
from robustkit.evidence.store import AttackRecord, CertificateRecord, CleanRecord, QueryRecord, Store
from robustkit.evidence.union import ThreatEvidence, members, union_row
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import is_minimum, norm_name, radius

# Whole numbers that some rows do not have.
_WHOLE = ["adv_pred", "question", "restart", "target", "l0", "forwards", "backwards"]

_SAMPLED = (*SAMPLE_COLUMNS, "radius", DRAW_COLUMN, *QUERY_COLUMNS)  # all that a row of samples may have

Rows = list[dict[str, Any]]


class ModelEvidence(NamedTuple):
    """All rows of a store about one model."""

    name: str
    clean: dict[int, CleanRecord]  # by image
    attacked: dict[tuple[str, str, str], list[AttackRecord]]  # by norm, eps_text and attack
    smoothing: Mapping[str, Any] | None  # sigma, n, n0 and alpha of a smoothed model
    certificates: dict[int, CertificateRecord]  # by image; empty unless the model is smoothed
    draws: SingleDraws | None  # of a randomized model
    audits: Mapping[tuple[str, str], Audit]  # by norm and eps_text; empty unless the model is audited
    queried: Mapping[tuple[str, str, str], Mapping[int, QueryRecord]]  # by norm, eps_text and attack; then by image


def summarised(store: Store, folder: Path) -> Run:
    """The run in `store`, as values."""
    manifest = store.manifest()
    identity = manifest["identity"]
    groups = _columns(entry["name"] for entry in identity["attacks"])
    attacks = {column: names for column, names in groups.items() if column != AUDIT or "audit" not in identity}
    results: Rows = []
    samples: list[tuple[Any, ...]] = []  # the columns _SAMPLED: as dicts, half a million rows take a gigabyte
    warnings: list[str] = []
    places: dict[str, Origins] = {}
    described = identity.get("corruptions")
    corrupted: dict[str, Verdicts] = {}
    clean: dict[str, Mapping[int, CleanRecord]] = {}
    for entry in identity["models"]:
        model = _model_evidence(store, entry, entry["name"] in manifest.get("randomized", {}))
        waiting = max(0, identity["n"] - len(model.clean))
        places[model.name] = origins(model.attacked, identity["threats"], groups)
        if "audit" in identity and model.draws is None:
            model = model._replace(audits=_audits(model, places[model.name], identity, groups))
            places[model.name] = counted(places[model.name], model.audits)
        model = model._replace(
            attacked=carried_records(model.attacked, places[model.name]),
            queried=carried_queries(model.queried, places[model.name]),
            draws=None if model.draws is None else model.draws.carried(places[model.name]),
        )
        warnings += _warnings(model)
        if "audit" in identity and model.draws is not None:
            warnings.append(f"{model.name} is randomized, for which AutoAttack is not made; it is not audited.")
        own: Rows = [{"model": model.name, **clean_row(model.clean, model.smoothing, waiting, model.draws)}]
        signs = {} if identity.get("surrogates") else _masking_signs(model, identity["threats"], groups)
        names = [entry["name"] for entry in identity["attacks"]]
        gradients = misled.followed(store.nearness(model.name), identity["threats"], names)
        for norm, eps_text in identity["threats"]:
            threat = {"norm": norm, "eps": radius(norm_name(unmasked(norm)), eps_text), "eps_text": eps_text}
            sign = signs.get(f"{norm} {eps_text}")
            masked = (sign is not None and sign.masked) or gradients[f"{norm} {eps_text}"].masked
            note = {"note": masking_signs.NOTE} if masked else {}
            rows = _threat_results(model, threat, attacks, waiting)
            own += [{"model": model.name, **threat, **row, **note} for row in rows]
            named = ({"model": model.name, **threat, **row} for row in _threat_samples(model, threat, attacks))
            samples += [tuple(row.get(name, math.nan) for name in _SAMPLED) for row in named]
        own += _union(model, identity["threats"], attacks, waiting, own)
        clean[model.name] = model.clean
        corrupted[model.name] = store.corrupted_verdicts(model.name) if described else {}
        for row in corruption_rows(described, corrupted[model.name], identity["n"]):
            own.append({"model": model.name, **row})
        warning = guessing(model.name, own[0]["correct"], own[0]["n"], len(identity["class_names"]))
        signs_of_masking = masking_signs.warning(model.name, signs), misled.warning(model.name, gradients)
        warnings += [each for each in (warning, *signs_of_masking) if each]
        own = with_sequences(own, identity, waiting)
        results += [{**row, "note": NOTE} for row in own] if warning else own
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
        manifest=manifest | {"warnings": [*manifest["warnings"], *warnings]} if warnings else manifest,
        results=_frame([{**row, **data} for row in results], RESULT_COLUMNS, further, []),
        samples=pd.DataFrame(samples, columns=[*_SAMPLED])[[*SAMPLE_COLUMNS, *measured]].astype(
            dict.fromkeys(whole, "Int64")
        ),
        pictures=carried_pictures(load_pictures(store), places),
        class_names=tuple(identity["class_names"]),
        corruptions=_frame([{**row, **data} for row in means], CORRUPTION_COLUMNS, [], []),
    )


def _known(value: Any) -> bool:
    """Whether a row has a value that is neither missing nor empty."""
    return bool(value) and value == value


def _audits(
    model: ModelEvidence, places: Origins, identity: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], Audit]:
    """The audits of a model by threat."""
    carried = model._replace(attacked=carried_records(model.attacked, places))
    return {
        (norm, eps_text): audit_of(
            identity["seed"], identity["audit"], model.clean, groups,
            _records(carried, {"norm": norm, "eps_text": eps_text}, groups),
        )
        for norm, eps_text in identity["threats"]
    }  # fmt: skip


def _columns(names: Iterable[str]) -> dict[str, list[str]]:
    """For each ensemble its members, for each other attack its own name: "rk-1/first" belongs to "rk-1"."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("/")[0], []).append(name)
    return groups


def _model_evidence(store: Store, entry: Mapping[str, Any], randomized: bool) -> ModelEvidence:
    name, smoothing = entry["name"], entry.get("smoothing")
    attacked: dict[tuple[str, str, str], list[AttackRecord]] = {}
    for record in store.attack_records(name):
        attacked.setdefault((record.norm, record.eps_text, record.attack), []).append(record)
    certificates = {} if smoothing is None else store.certificates(name)
    clean = store.clean(name)
    without_clean = {record.sample for records in attacked.values() for record in records} - set(clean)
    if without_clean or (smoothing is not None and set(certificates) != set(clean)):
        raise not_ours(store.folder, f"rows of {name[:40]!r} have no row of the clean image, or no certificate")
    draws = single_draws(store.draw_records(name)) if randomized else None
    if draws is not None and set(draws.clean) != set(clean):
        raise not_ours(store.folder, f"rows of {name[:40]!r} have no row of single draws")
    queried: dict[tuple[str, str, str], dict[int, QueryRecord]] = {}
    for each in store.query_records(name):
        queried.setdefault((each.norm, each.eps_text, each.attack), {})[each.sample] = each
    return ModelEvidence(name, clean, attacked, smoothing, certificates, draws, {}, queried)


def _warnings(model: ModelEvidence) -> list[str]:
    if model.smoothing is None:
        return []
    records = [record for records in model.attacked.values() for record in records]
    return contradictions(model.name, model.smoothing, model.clean, model.certificates, records)


def _masking_signs(
    model: ModelEvidence, threats: Sequence[Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> dict[str, masking_signs.BrokenImages]:
    """Counts by threat, of attacks on the model itself."""
    with_gradients = masking_signs.gradient_attacks(model.attacked)
    return {
        f"{norm} {eps_text}": masking_signs.broken_images(
            _records(model, {"norm": norm, "eps_text": eps_text}, groups), with_gradients
        )
        for norm, eps_text in threats
    }


def _threat_results(
    model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]], waiting: int
) -> Rows:
    audit = model.audits.get((threat["norm"], threat["eps_text"]))
    rows = threat_rows(model.clean, groups, _records(model, threat, groups), waiting, audit)
    if model.smoothing is not None:
        images = certified_images(model.clean, model.certificates, threat["norm"], threat["eps"])
        rows.append(result_row("certified", "certified", len(model.clean), len(images), [], 0, waiting))
    if is_minimum(threat["eps_text"]):
        correct = [number for number, row in model.clean.items() if row.pred == row.label]
        rows = distance_extras(threat["norm"], rows, groups, _records(model, threat, groups), correct)
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
            _records(model, {"norm": norm, "eps_text": eps_text}, groups), model.audits.get((norm, eps_text))
        )
        for norm, eps_text in keys
    ]
    notes = [{"note": row["note"]} for row in own if "note" in row and not is_minimum(row["eps_text"])]
    row = union_row(model.clean, evidence, parts, waiting)
    extras = {} if model.draws is None else union_extras(model.draws, groups, keys)
    return [{"model": model.name, **row, **extras, **(notes[0] if notes else {})}]


def _threat_samples(model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> Rows:
    records = _records(model, threat, groups)
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


def _records(
    model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> dict[str, list[AttackRecord]]:
    """The rows at one threat, by attack; empty where an attack has not run yet."""
    key = threat["norm"], threat["eps_text"]
    return {name: model.attacked.get((*key, name), []) for names in groups.values() for name in names}


def _frame(rows: Rows, columns: Sequence[str], further: Sequence[str], whole: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[*columns, *further])
    # Whole numbers stay whole although some rows have none.
    return frame.astype(dict.fromkeys([*whole, *(name for name in further if name == "abstained")], "Int64"))
