"""Tables out of evidence: `results` and `samples` as data frames, and everything that a report needs.

Only what inputs and seed determine goes in, so two equal runs give equal bytes.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustkit.errors import UserError
from robustkit.evidence import certificates as certified
from robustkit.evidence.run import Picture, Run
from robustkit.evidence.store import SCHEMA, AttackRecord, CleanRecord, PictureRecord, Store, check_readable
from robustkit.primitives.threat import norm_name, radius
from robustkit.statistics.intervals import proportion

_RESULTS = [
    "model",
    "dataset",
    "split",
    "norm",
    "eps",
    "eps_text",
    "attack",
    "role",
    "n",
    "correct",
    "accuracy",
    "ci_low",
    "ci_high",
    "ci_method",
    "attacked",
    "broken",
    "success_rate",
    "forwards",
    "backwards",
]
_SAMPLES = [
    "model",
    "norm",
    "eps",
    "eps_text",
    "attack",
    "sample",
    "label",
    "clean_pred",
    "verdict",
    "adv_pred",
    "question",
    "restart",
    "target",
    "linf",
    "l2",
    "l1",
    "l0",
    "forwards",
    "backwards",
]
_NUMBERS = ["adv_pred", "question", "restart", "target", "l0", "forwards", "backwards"]


def load_run(folder: str | Path) -> Run:
    """A finished or half-finished run, read from its folder.

    Raises:
        UserError: the folder has no evidence, or another process is writing to it.
    """
    path = Path(folder)
    check_readable(path)
    store = Store(path, reading=True)
    try:
        known = store.manifest().get("identity")
        if known is None:
            raise UserError(f"{path} holds no evidence yet; run the command that made it again.")
        if known["schema"] != SCHEMA:
            raise UserError(f"{path} was written by another version of robustkit; evaluate again with this one.")
        return summarised(store, path)
    finally:
        store.close()


def summarised(store: Store, folder: Path) -> Run:
    """Everything that follows from a store."""
    manifest = store.manifest()
    identity = manifest["identity"]
    hits: dict[tuple[str, ...], list[AttackRecord]] = {}
    for hit in store.hits():
        hits.setdefault((hit.model, hit.norm, hit.eps_text, hit.attack), []).append(hit)
    results, samples, warnings = [], [], []
    for entry in identity["models"]:
        model = entry["name"]
        clean = store.clean(model)
        smoothing = entry.get("smoothing")
        proofs = None if smoothing is None else store.certificates(model)
        results.append(_clean_row(model, identity, clean, smoothing))
        if proofs is not None:
            broken = [hit for key, group in hits.items() if key[0] == model for hit in group]
            warnings += certified.contradictions(model, smoothing, clean, proofs, broken)
        for norm, eps_text in identity["threats"]:
            groups = _groups(identity["attacks"])
            outcomes = {
                name: hits.get((model, norm, eps_text, name), []) for names in groups.values() for name in names
            }
            made = _threat_rows(clean, groups, outcomes)
            base = {"model": model, "norm": norm, "eps": radius(norm_name(norm), eps_text), "eps_text": eps_text}
            held = set() if proofs is None else certified.certified(clean, proofs, norm, base["eps"])
            if proofs is not None:
                made.append(_measured("certified", "certified", len(clean), len(held), []))
            results += [{**base, "dataset": identity["dataset"]["name"], "split": identity["dataset"]["split"], **row}
                        for row in made]  # fmt: skip
            for column, names in groups.items():
                samples += _sample_rows(base, clean, column, names, outcomes)
            if proofs is not None:
                samples += certified.sample_rows(base, clean, proofs, held)
    smoothed = any("smoothing" in entry for entry in identity["models"])
    more, further = (["abstained"], ["radius"]) if smoothed else ([], [])
    return Run(
        folder, manifest | ({"warnings": [*manifest["warnings"], *warnings]} if warnings else {}),
        _whole(pd.DataFrame(results, columns=[*_RESULTS, *more]), more),
        _whole(pd.DataFrame(samples, columns=[*_SAMPLES, *further]), _NUMBERS),
        _pictures(store), tuple(identity["class_names"]),
    )  # fmt: skip


def _groups(attacks: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Columns and the attacks they are made of."""
    groups: dict[str, list[str]] = {}
    for entry in attacks:
        groups.setdefault(entry["name"].partition("/")[0] if "/" in entry["name"] else entry["name"], []).append(
            entry["name"]
        )
    return groups


def _clean_row(
    model: str, identity: dict[str, Any], clean: dict[int, CleanRecord], smoothing: dict[str, Any] | None
) -> dict[str, Any]:
    correct = sum(row.pred == row.label for row in clean.values())
    spent = len(clean) * certified.passes(smoothing)
    return {
        "model": model, "dataset": identity["dataset"]["name"], "split": identity["dataset"]["split"], "norm": "-",
        "eps": 0.0, "eps_text": "0", **_measured("clean", "clean", len(clean), correct, [], spent, 0),
        "abstained": None if smoothing is None else certified.abstained(clean),
    }  # fmt: skip


def _threat_rows(
    clean: dict[int, CleanRecord], groups: dict[str, list[str]], outcomes: dict[str, list[AttackRecord]]
) -> list[dict[str, Any]]:
    """One row per attack, ensemble member and ensemble, and the worst case over all of them."""
    correct = {number for number, row in clean.items() if row.pred == row.label}
    rows, all_broken, everything = [], set(), []
    for column, names in groups.items():
        broken: set[int] = set()
        spent: list[AttackRecord] = []
        for name in names:
            hits = outcomes[name]
            broken |= {hit.sample for hit in hits if hit.success}
            spent += hits
            role = "attack" if names == [column] else "member"
            rows.append(_measured(name, role, len(clean), len(correct - broken), hits))
        if names != [column]:
            rows.append(_measured(column, "ensemble", len(clean), len(correct - broken), _last(spent)))
        all_broken |= broken
        everything += spent
    rows.append(_measured("worst-case", "worst-case", len(clean), len(correct - all_broken), _last(everything)))
    rows[-1]["forwards"] = sum(hit.forwards for hit in everything)
    rows[-1]["backwards"] = sum(hit.backwards for hit in everything)
    return rows


def _last(hits: list[AttackRecord]) -> list[AttackRecord]:
    """One row per image for several attacks together: its success if there was one, with all passes spent."""
    merged: dict[int, AttackRecord] = {}
    for hit in hits:
        before = merged.get(hit.sample)
        if before is None:
            merged[hit.sample] = hit
            continue
        kept = before if before.success else hit
        passes = {"forwards": before.forwards + hit.forwards, "backwards": before.backwards + hit.backwards}
        merged[hit.sample] = AttackRecord(**{**vars(kept), **passes})
    return list(merged.values())


def _measured(
    name: str,
    role: str,
    n: int,
    correct: int,
    hits: list[AttackRecord],
    forwards: int | None = None,
    backwards: int | None = None,
) -> dict[str, Any]:
    share = proportion(correct, n)
    broken = sum(hit.success for hit in hits)
    return {
        "attack": name, "role": role, "n": n, "correct": correct, "accuracy": share.value, "ci_low": share.low,
        "ci_high": share.high, "ci_method": share.method, "attacked": len(hits), "broken": broken,
        "success_rate": broken / len(hits) if hits else float("nan"),
        "forwards": sum(hit.forwards for hit in hits) if forwards is None else forwards,
        "backwards": sum(hit.backwards for hit in hits) if backwards is None else backwards,
    }  # fmt: skip


def _sample_rows(
    base: dict[str, Any],
    clean: dict[int, CleanRecord],
    column: str,
    names: list[str],
    outcomes: dict[str, list[AttackRecord]],
) -> list[dict[str, Any]]:
    rows = []
    together = _last([hit for name in names for hit in outcomes[name]])
    for name, hits in [*((name, outcomes[name]) for name in names if name != column), (column, together)]:
        known = {hit.sample: hit for hit in hits}
        for number in sorted(clean):
            row, hit = clean[number], known.get(number)
            if hit is None and (name != column or row.pred == row.label):
                continue  # a member was not asked, or the run has not come so far
            verdict = "clean-wrong" if hit is None else "broken" if hit.success else "robust"
            found = {} if hit is None else {key: value for key, value in vars(hit).items() if key in _SAMPLES}
            rows.append({**found, **base, "attack": name, "sample": number, "label": row.label,
                         "clean_pred": row.pred, "verdict": verdict})  # fmt: skip
    return rows


def _whole(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Whole numbers stay whole where a row has none."""
    return frame.astype(dict.fromkeys(columns, "Int64"))


def _pictures(store: Store) -> list[Picture]:
    clean: dict[str, dict[int, CleanRecord]] = {}
    hits = {(hit.model, hit.norm, hit.eps_text, hit.attack, hit.sample): hit for hit in store.hits()}
    pictures = []
    for shot in store.shots():
        hit = hits[shot.model, shot.norm, shot.eps_text, shot.attack, shot.sample]
        row = clean.setdefault(shot.model, store.clean(shot.model))[shot.sample]
        pictures.append(
            Picture(
                shot.model,
                shot.norm,
                shot.eps_text,
                shot.attack,
                shot.sample,
                row.label,
                row.pred,
                hit.adv_pred,
                _pixels(shot, shot.x),
                _pixels(shot, shot.x_adv),
            )
        )
    return pictures


def _pixels(shot: PictureRecord, data: bytes) -> NDArray[np.floating[Any]]:
    shape = [int(side) for side in shot.shape.split()]
    # A float64 model's witness is kept in float64: rounded, it would leave the ball.
    wide = len(data) == 8 * math.prod(shape)
    flat: NDArray[np.floating[Any]] = np.frombuffer(data, dtype=np.float64 if wide else np.float32)
    return flat.reshape(shape)
