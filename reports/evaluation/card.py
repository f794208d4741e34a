"""A card of a run for auditors: what an attacker was allowed, what was tested and what was not, and how accuracy fell.

The words are those of NIST AI 100-2 (E2025), Adversarial Machine Learning: A Taxonomy and Terminology. Every field
follows from the evidence of the run, or says "not assessed". `card.schema.json` beside this file describes the JSON.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from robustkit.comparison.gate import gate
from robustkit.errors import UserError
from robustkit.evidence.digest import evidence_digest
from robustkit.evidence.run import Run
from robustkit.primitives import registry
from robustkit.statistics.paired import PairedCounts, paired_difference

from . import audit, bisection, distances, precision, randomized, rejection, smoothing
from .board import Board, boards
from .checks import CheckSummary, check_summary, unreliable
from .json_form import json_value, threat_entry
from .methods import unchecked, unions
from .result_rows import ResultRow, ThreatLabel

FORMAT: Final = "robustkit-card"
VERSION: Final = 1
NOT_ASSESSED: Final = "not assessed"
TERMS: Final = "NIST AI 100-2 E2025"

_WHITE, _SCORES, _LABELS, _TRANSFER = (
    "white-box", "black-box, score-based queries", "black-box, decision-based queries", "black-box, transfer",
)  # fmt: skip
_KNOWLEDGE: Final = {
    "labels": _LABELS, "logits": _SCORES, "gradients": _WHITE,
}  # fmt: skip
_ACCESS: Final = {
    _WHITE: "weights, architecture and gradients of the model",
    _SCORES: "queries that are answered with the scores of all classes",
    _LABELS: "queries that are answered with the predicted class",
    _TRANSFER: "no queries of the model: examples made on a surrogate model, and tried once on this one",
}
_OTHER_ATTACKS: Final = (
    f"Targeted misclassification, towards a class that the attacker chooses: {NOT_ASSESSED}; any error counts.",
    f"Poisoning attacks, of training data, labels or pre-trained weights: {NOT_ASSESSED}.",
    f"Privacy attacks, such as membership inference, data reconstruction and model extraction: {NOT_ASSESSED}.",
    f"Availability, the time and energy that an input costs: {NOT_ASSESSED}.",
)
_CORRUPTED: Final = f"Images corrupted by noise, blur, weather or compression: {NOT_ASSESSED}."


def card(run: Run, thresholds: Sequence[str] = ()) -> dict[str, Any]:
    """The card of a run.

    Args:
        run: finished or not.
        thresholds: conditions such as "Linf@8/255>=0.4", beside those that were declared before the run.

    Raises:
        UserError: a threshold is no condition, or about a threat that the run does not have.
    """
    board = boards([run])[0]
    checks = check_summary(board)
    manifest, identity = run.manifest, run.manifest["identity"]
    environment = manifest["environment"]
    attacks = [_attack(entry, identity) for entry in identity["attacks"]]
    return {
        "format": FORMAT, "version": VERSION, "terms": TERMS, "run": run.name,
        "evidence_sha256": NOT_ASSESSED if run.folder == Path() else evidence_digest(run.folder),
        "tool": {"name": "robustkit", "version": manifest["robustkit"],
                 "with": {key: environment.get(key, NOT_ASSESSED) for key in ("python", "torch", "system", "device")}},
        "dates": {"created": manifest["created"], "finished": manifest["finished"] or "unfinished"},
        "command": manifest["command"],
        "data": {**identity["dataset"], "images": identity["n"], "classes": len(run.class_names) or NOT_ASSESSED},
        "seed": identity["seed"],
        "threat_model": {
            "attack_class": "evasion", "stage": "deployment",
            "goal": "integrity violation: any misclassification of a correctly classified image (untargeted)",
            "capability": "control of the input, within the budget; query access as below",
            "knowledge": list(dict.fromkeys(each["knowledge"] for each in attacks)),
            "budget": [threat_entry(norm, text, identity.get("masks", {})) for norm, text in identity["threats"]],
        },
        "attacks": attacks, "requests": manifest.get("requests", {}),
        "models": [_model(board, run, entry) for entry in identity["models"]],
        "thresholds": _thresholds(run, thresholds) or "not declared",
        "not_tested": list(_not_tested(board, run, checks)), "notes": list(_measured(board, checks)),
        "warnings": list(manifest["warnings"]),
    }  # fmt: skip


def card_json(run: Run, thresholds: Sequence[str] = ()) -> str:
    """The card as JSON, in ASCII, the same bytes for the same evidence."""
    return json.dumps(json_value(card(run, thresholds)), indent=1, allow_nan=False) + "\n"


def card_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `card_json`."""
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("card.schema.json").read_text("utf-8"))
    return found


def _not_tested(board: Board, run: Run, checks: CheckSummary) -> Iterator[str]:
    yield from _OTHER_ATTACKS
    if run.corruptions.empty:
        yield _CORRUPTED
    yield from unchecked(board)
    if checks.switched_off:
        yield checks.switched_off


def _measured(board: Board, checks: CheckSummary) -> Iterator[str]:
    """How numbers were measured, and the results that are of no single threat, or no accuracies."""
    yield from (state.sentence for state in board.states)
    if checks.counts:
        yield f"Checks of whether the attacks failed: {checks.counts}."
    yield from unions(board)
    yield from audit.notes(board)
    yield from distances.medians(board)
    yield from bisection.notes(board)
    yield from smoothing.notes(board)
    yield from (text for text in randomized.notes(board) if text != randomized.ONE_DRAW)
    yield from rejection.notes(board)
    yield from precision.notes(board)


def _attack(entry: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    name = str(entry["name"])
    surrogates = [each["name"] for each in identity.get("surrogates", [])]
    knowledge = _TRANSFER if surrogates else _knowledge(str(entry.get("attack", "")))
    return {
        "name": name, "knowledge": knowledge, "access": _ACCESS.get(knowledge, NOT_ASSESSED),
        "settings": {key: json_value(value) for key, value in entry.items() if key != "name"},
    }  # fmt: skip


def _knowledge(kind: str) -> str:
    """What an attack of this class knows; a class of somebody else does not say."""
    found = {each.__name__: each.sees for each in registry.classes().values()}
    return _KNOWLEDGE.get(found.get(kind, ""), NOT_ASSESSED)


def _model(board: Board, run: Run, entry: Mapping[str, Any]) -> dict[str, Any]:
    name = str(entry["name"])
    rows = [(threat, board.worst(name, threat)) for threat in board.threats]
    clean = board.clean(name)
    return {
        "name": name, "sha256": entry.get("sha256", NOT_ASSESSED), "source": entry.get("source", NOT_ASSESSED),
        "clean": NOT_ASSESSED if clean is None else _share(clean),
        "under_attack": [_under_attack(board, name, threat, clean, row) for threat, row in rows if row is not None],
        "corrupted": _corrupted(run, name),
        "notes": _notes(run, name),
    }  # fmt: skip


def _under_attack(
    board: Board, model: str, threat: ThreatLabel, clean: ResultRow | None, row: ResultRow
) -> dict[str, Any]:
    certified = board.certified(model, threat)
    return {
        "norm": threat.norm, "eps_text": threat.eps_text,
        "worst_case": NOT_ASSESSED if row.is_open else {**_share(row), "bound": "upper"},
        "drop": NOT_ASSESSED if row.is_open or clean is None else _drop(clean, row),
        "certified": NOT_ASSESSED if certified is None else {**_share(certified), "bound": "lower"},
    }  # fmt: skip


def _corrupted(run: Run, model: str) -> list[dict[str, Any]]:
    """The mean accuracy on corrupted images: of each corruption, and of all of them if there are several."""
    if run.corruptions.empty:
        return []
    columns = ["source", "corruption", "severities", "accuracy", "n", "ci_low", "ci_high", "ci_method", "ce"]
    own = run.corruptions[run.corruptions["model"] == model]
    return [{key: json_value(row.get(key)) for key in columns} for row in own.to_dict("records")]


def _share(row: ResultRow) -> dict[str, Any]:
    return {
        "accuracy": row.correct / row.n if row.n else None, "correct": row.correct, "n": row.n,
        "ci_low": None if math.isnan(row.low) else row.low, "ci_high": None if math.isnan(row.high) else row.high,
        "ci_method": row.method,
    }  # fmt: skip


def _drop(clean: ResultRow, row: ResultRow) -> dict[str, Any]:
    """How far the accuracy falls; every image that withstands the attacks is one that is classified correctly.

    The interval reaches to where all images without a verdict are classified correctly and broken.
    """
    broken, wrong = clean.correct - row.correct, clean.n - clean.correct
    difference = paired_difference(PairedCounts(row.correct, broken, 0, wrong))
    most = paired_difference(PairedCounts(row.correct, broken + row.errors, 0, wrong - row.errors))
    values = {"value": difference.value, "ci_low": difference.low, "ci_high": most.high}
    return {**{key: json_value(value) for key, value in values.items()}, "ci_method": "newcombe paired (method 10)"}


def _notes(run: Run, model: str) -> list[str]:
    """Which of its results are not reliable, and why."""
    return list(unreliable(check for check in run.checks if check.model == model))


def _thresholds(run: Run, given: Sequence[str]) -> list[dict[str, Any]]:
    declared: list[str] = run.manifest.get("declared", [])
    later = [text for text in given if text not in declared]
    return [*_judged(run, declared, "before the run"), *_judged(run, later, "when this card was written")]


def _judged(run: Run, texts: Sequence[str], when: str) -> Iterator[dict[str, Any]]:
    for text in texts:
        entry = {"condition": text, "declared": when}
        if run.manifest["finished"] is None:
            yield {**entry, "model": NOT_ASSESSED, "met": NOT_ASSESSED, "reason": "the run is unfinished"}
            continue
        try:
            checks = gate(run, fail_under=text).checks
        except UserError as error:
            if when != "before the run":
                raise
            yield {**entry, "model": NOT_ASSESSED, "met": NOT_ASSESSED, "reason": str(error)}
            continue
        for model in dict.fromkeys(check.model for check in checks):
            own = [check for check in checks if check.model == model]
            yield {
                **entry, "model": model, "met": all(check.passed for check in own),
                "reason": "; ".join(check.reason for check in own),
            }  # fmt: skip
