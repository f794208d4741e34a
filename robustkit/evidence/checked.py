"""The facts that checks read, from a store, and what their findings say about the rows of the results."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.black_box_wins import gradient_attacks
from robustkit.checks.check import Check, reaches
from robustkit.checks.facts import FreshAnswers, Level, ModelFacts, ProbeRecord, RunThreat, StoredWitness
from robustkit.evidence.model_evidence import ModelEvidence, read_evidence
from robustkit.evidence.picture import Picture
from robustkit.evidence.pictures import load_pictures
from robustkit.evidence.rows import NearnessRecord
from robustkit.evidence.store import Store

USUAL: Final[Level] = "quick"
SWITCHED_OFF: Final = (
    "Automatic checks were switched off (--checks none), so it is not known whether the attacks worked."
)
_MADE_UP = (32, 8)  # points behind the images at which a model was asked, by the size of its images


def level_of(manifest: Mapping[str, Any]) -> Level:
    """The level of checks that a run was asked for."""
    level: Level = manifest.get("checks", USUAL)
    return level


def makes_passes(identity: Mapping[str, Any], manifest: Mapping[str, Any], level: Level) -> bool:
    """Whether checks of a level may make passes of their own in a run with this identity and manifest."""
    if level == "none" or reaches("standard", level):
        return level != "none"
    measured = any("measures" in entry for entry in identity["attacks"])
    return not measured or any(manifest.get(key) for key in ("gradient_stops", "randomized"))


def unmade(checks: Iterable[Check], level: Level) -> tuple[str, ...]:
    """The names of the checks that a level asks for and whose passes are missing."""
    return tuple(dict.fromkeys(each.name for each in checks if each.status == "not_run" and reaches(each.level, level)))


def facts_of_run(
    store: Store, identity: Mapping[str, Any], manifest: Mapping[str, Any], level: Level
) -> dict[str, ModelFacts]:
    """The facts of each model."""
    stored = witnesses_of(load_pictures(store))
    return {
        str(entry["name"]): model_facts(
            store, identity, manifest, level, read_evidence(store, identity, manifest, entry).model, stored
        )
        for entry in identity["models"]
    }


def model_facts(
    store: Store, identity: Mapping[str, Any], manifest: Mapping[str, Any], level: Level, model: ModelEvidence,
    witnesses: tuple[StoredWitness, ...],
) -> ModelFacts:  # fmt: skip
    """The facts of one model, whose rows are carried over already."""
    probes: dict[tuple[str, str, str], dict[int, ProbeRecord]] = {}
    for row in store.rows(ProbeRecord, model.name):
        if row.sample in model.failed:
            continue
        probes.setdefault((row.norm, row.eps_text, row.probe), {})[row.sample] = row
    entry = next(each for each in identity["models"] if each["name"] == model.name)
    return ModelFacts(
        model=model.name, level=level, seed=identity["seed"], n=len(model.clean), classes=len(identity["class_names"]),
        labels=model.clean.labels,
        correct=model.clean.correct,
        places=tuple(RunThreat(*threat) for threat in identity["threats"]), attacked=model.attacked,
        attacks=tuple(identity["attacks"]), nearness=_nearness(store, model),
        probes=probes,
        gradients_followed=bool(gradient_attacks(model.attacked)),
        logits=_logits(store, model.name), says_probabilities=bool(entry.get("probabilities")),
        rejects=model.rejects,
        randomized=model.draws is not None, smoothed=model.smoothing is not None,
        replaced=tuple(entry.get("bpda") or ()), answers_only=bool(entry.get("answers_only")),
        transferred=bool(identity.get("surrogates")), witnesses=witnesses,
        fresh=_fresh(model),
        straight_through=bool(entry.get("straight_through")),
        gradient_stops=tuple(manifest.get("gradient_stops", {}).get(model.name, ())),
    )  # fmt: skip


def _nearness(store: Store, model: ModelEvidence) -> tuple[NearnessRecord, ...]:
    return tuple(each for each in store.rows(NearnessRecord, model.name) if each.sample not in model.failed)


def witnesses_of(pictures: Iterable[Picture]) -> tuple[StoredWitness, ...]:
    """The stored adversarial examples of all models."""
    return tuple(
        StoredWitness(
            each.norm, each.eps_text, each.attack, each.sample, each.model, each.adv_pred not in (each.label, -1),
            each.x, each.x_adv,
        )
        for each in pictures
    )  # fmt: skip


def note_on(row: Mapping[str, Any], checks: Iterable[Check]) -> dict[str, str]:
    """Why a row of the results is not reliable, as a further column; empty where nothing says so."""
    threats = ("", f"{row['norm']} {row['eps_text']}", row["norm"])
    notes = [check.note for check in checks if check.status == "failed" and check.threat in threats]
    return {"note": "; ".join(dict.fromkeys(notes))} if notes else {}


def _fresh(model: ModelEvidence) -> dict[tuple[str, str, str], dict[int, FreshAnswers]]:
    if model.draws is None:
        return {}
    return {
        key: {number: FreshAnswers(row.selection + row.estimation, 2 * row.draws) for number, row in rows.items()}
        for key, rows in model.draws.attacked.items()
    }


def _logits(store: Store, model: str) -> tuple[NDArray[np.float32], ...]:
    """The stored logits at images, in each shape that fits: the number of classes is not stored with them."""
    record = store.answer("model", model)
    if record is None or record.images < 1 or len(record.logits) % 4:
        return ()
    values = np.frombuffer(record.logits, dtype="<f4")
    points = [record.images + made_up for made_up in _MADE_UP if len(values) % (record.images + made_up) == 0]
    return tuple(values.reshape(count, -1)[: record.images] for count in points if len(values))
