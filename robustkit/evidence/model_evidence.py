"""All rows of a store about one model, as they count: errors of smaller radii carried over, audits drawn."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.evidence.audit import Audit, audit_of, counted
from robustkit.evidence.carried import Origins, carried_columns, carried_queries, origins
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.failed import Failed, of_other_images
from robustkit.evidence.opening import not_ours
from robustkit.evidence.rows import CertificateRecord, DrawRecord, QueryRecord
from robustkit.evidence.single_draws import SingleDraws, single_draws
from robustkit.evidence.store import Store
from robustkit.evidence.stored_columns import attack_columns


class ModelEvidence(NamedTuple):
    """All rows of a store about one model."""

    name: str
    clean: CleanColumns
    attacked: dict[tuple[str, str, str], AttackColumns]  # by norm, eps_text and attack
    smoothing: Mapping[str, Any] | None  # sigma, n, n0 and alpha of a smoothed model
    certificates: dict[int, CertificateRecord]  # by image; empty unless the model is smoothed
    draws: SingleDraws | None  # of a randomized model
    audits: Mapping[tuple[str, str], Audit]  # by norm and eps_text; empty unless the model is audited
    queried: Mapping[tuple[str, str, str], Mapping[int, QueryRecord]]  # by norm, eps_text and attack; then by image
    failed: Failed  # images without a verdict; they have no other rows here
    rejects: bool = False  # whether the model may reject images


class CountedEvidence(NamedTuple):
    """The rows of a model that count, and where each of them was made."""

    model: ModelEvidence
    places: Origins


def read_evidence(
    store: Store, identity: Mapping[str, Any], manifest: Mapping[str, Any], entry: Mapping[str, Any]
) -> CountedEvidence:
    """The evidence of one model.

    Args:
        store: the evidence.
        identity: of the run.
        manifest: of the run; its identity is not read.
        entry: the model's in the identity.

    Raises:
        UserError: rows are missing.
    """
    groups = columns_of(identity)
    model = _model_evidence(store, identity["n"], entry, entry["name"] in manifest.get("randomized", {}))
    places = origins(model.attacked, identity["threats"], groups)
    if "audit" in identity and model.draws is None:
        model = model._replace(audits=_audits(model, places, identity, groups))
        places = counted(places, model.audits)
    model = model._replace(
        attacked=carried_columns(model.attacked, places),
        queried=carried_queries(model.queried, places),
        draws=None if model.draws is None else model.draws.carried(places),
    )
    return CountedEvidence(model, places)


def columns_of(identity: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each ensemble its members, for each other attack its own name: "rk-1/first" belongs to "rk-1"."""
    groups: dict[str, list[str]] = {}
    for name in (entry["name"] for entry in identity["attacks"]):
        groups.setdefault(name.partition("/")[0], []).append(name)
    return groups


def records_under(
    model: ModelEvidence, threat: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> dict[str, AttackColumns]:
    """The rows at one threat, by attack; empty where an attack has not run yet."""
    key = threat["norm"], threat["eps_text"]
    return {name: model.attacked.get((*key, name), AttackColumns.of(())) for names in groups.values() for name in names}


def _audits(
    model: ModelEvidence, places: Origins, identity: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], Audit]:
    """The audits of a model by threat."""
    carried = model._replace(attacked=carried_columns(model.attacked, places))
    return {
        (norm, eps_text): audit_of(
            identity["seed"], identity["audit"], model.clean, groups,
            records_under(carried, {"norm": norm, "eps_text": eps_text}, groups),
        )
        for norm, eps_text in identity["threats"]
    }  # fmt: skip


def _model_evidence(store: Store, images: int, entry: Mapping[str, Any], randomized: bool) -> ModelEvidence:
    name, smoothing = entry["name"], entry.get("smoothing")
    attacked = attack_columns(store, name)
    certificates = {} if smoothing is None else {row.sample: row for row in store.rows(CertificateRecord, name)}
    clean = CleanColumns.read(store, name)
    without_clean = ImageSet.union(rows.images for rows in attacked.values()) - clean.images
    if without_clean or (smoothing is not None and set(certificates) != clean.images):
        raise not_ours(store.folder, f"rows of {name[:40]!r} have no row of the clean image, or no certificate")
    draws = single_draws(store.rows(DrawRecord, name)) if randomized else None
    if draws is not None and set(draws.clean) != clean.images:
        raise not_ours(store.folder, f"rows of {name[:40]!r} have no row of single draws")
    queried: dict[tuple[str, str, str], dict[int, QueryRecord]] = {}
    for each in store.rows(QueryRecord, name):
        queried.setdefault((each.norm, each.eps_text, each.attack), {})[each.sample] = each
    failed = store.failed(name)
    if failed and (len(clean.images | failed.keys()) > images or _other_labels(failed, clean)):
        raise not_ours(store.folder, f"images of {name[:40]!r} without a verdict do not belong to the run")
    evidence = ModelEvidence(name, clean, attacked, smoothing, certificates, draws, {}, queried, failed,
                             bool(entry.get("rejects")))  # fmt: skip
    return _without_failed(evidence) if evidence.failed else evidence


def _other_labels(failed: Failed, clean: CleanColumns) -> bool:
    return any(number in clean and clean[number].label != row.label for number, row in failed.items())


def _without_failed(model: ModelEvidence) -> ModelEvidence:
    """The evidence without rows of images that have no verdict: what was found before they failed does not count."""
    failed, draws = model.failed, model.draws
    clean = model.clean.where(~np.isin(model.clean.sample, ImageSet(failed).array))
    return model._replace(
        clean=clean, certificates=of_other_images(model.certificates, failed),
        attacked={key: rows.of_images(clean.images) for key, rows in model.attacked.items()},
        queried={key: of_other_images(rows, failed) for key, rows in model.queried.items()},
        draws=None if draws is None else draws._replace(
            clean=of_other_images(draws.clean, failed),
            attacked={key: of_other_images(points, failed) for key, points in draws.attacked.items()},
        ),
    )  # fmt: skip
