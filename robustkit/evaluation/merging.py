"""Join runs of the same data and seed into one run folder: more models, attacks or radii, or the shards of one run.

Evidence is copied row by row. A row that two runs have must be the same in both. Nothing is computed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robustkit.checks.facts import ProbeRecord
from robustkit.errors import UserError
from robustkit.evaluation.complete_shards import are_shards
from robustkit.evaluation.joined_manifest import joined_identity, joined_manifest
from robustkit.evaluation.merged_checks import notes_on_checks, rows_of_checks
from robustkit.evaluation.new_folder import new_folder
from robustkit.evidence.checked import level_of
from robustkit.evidence.opening import another_version
from robustkit.evidence.rows import (
    AnswerRecord,
    AttackRecord,
    CertificateRecord,
    CleanRecord,
    ConfidenceRecord,
    CorruptedRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    OriginalRecord,
    PictureRecord,
    QueryRecord,
    Row,
    WitnessRecord,
)
from robustkit.evidence.run import Run
from robustkit.evidence.store import SCHEMA, Store
from robustkit.evidence.tables import summarised
from robustkit.host.environment import now
from robustkit.paths import user_path

_KINDS: tuple[type[Any], ...] = (
    CleanRecord, CertificateRecord, AttackRecord, DrawRecord, NearnessRecord, QueryRecord, PictureRecord,
    CorruptedRecord, ConfidenceRecord, FailedRecord,
)  # fmt: skip
_KEPT: tuple[type[Any], ...] = (WitnessRecord, OriginalRecord)
_CARRIED = (AttackRecord, DrawRecord, PictureRecord)
_AT_ONCE = 10_000  # rows in one transaction
_TOLERANCE = 1e-4  # of the range of the logits, as where a run is continued


@dataclass(frozen=True)
class Merged:
    """A merged run, and what a reader must know about it."""

    run: Run
    missing: tuple[str, ...]  # "resnet18, Linf 0.1, pgd: 40 images", what no run had
    notes: tuple[str, ...]


def merge(folders: Sequence[str | Path], out: str | Path) -> Merged:
    """Join run folders into a new one, which has everything that any of them has.

    Args:
        folders: two runs or more, finished or not.
        out: the folder to be made.

    Raises:
        UserError: the runs differ in data, seed or a setting that both have, rows contradict each other, they are
            shards and not all of them are there, or `out` exists.
    """
    target = user_path(out)
    if len(folders) < 2:
        raise UserError("A merge needs two runs or more; name another folder.")
    if target.exists():
        raise UserError(f"{out} exists, and a merged run needs a new folder; give another --out.")
    with new_folder(target) as part, ExitStack() as stack:
        sources = [_opened(user_path(folder), stack) for folder in folders]
        missing = _filled(part, sources)
        manifests = [source.manifest() for source in sources]
    store = Store(target, reading=True)
    try:
        run = summarised(store, target)
        about_checks = notes_on_checks(manifests, level_of(run.manifest), run.checks, out)
        return Merged(run, missing, (*_notes(manifests), *about_checks))
    finally:
        store.close()


def _opened(folder: Path, stack: ExitStack) -> Store:
    store = Store(folder, reading=True)
    stack.callback(store.close)
    identity = None if store.blank else store.manifest().get("identity")
    if identity is None:
        raise UserError(f"{folder} holds no evidence yet; repeat the command that made it.")
    if identity["schema"] != SCHEMA:
        raise another_version(folder)
    return store


def _filled(part: Path, sources: Sequence[Store]) -> tuple[str, ...]:
    """Fill the folder; what is missing."""
    manifests = [source.manifest() for source in sources]
    names = [str(source.folder) for source in sources]
    shards = are_shards(names, manifests)
    identity = joined_identity(names, [manifest["identity"] for manifest in manifests])
    keeps = ["adversarial" in manifest for manifest in manifests]
    target = Store(part)
    try:
        for source in sources:
            carried = set() if shards else _carried(source)
            for kind in (*_KINDS, *(_KEPT if all(keeps) else ())):
                _copy_rows(source, target, (row for row in source.every(kind) if _key(row) not in carried))
            _copy_rows(source, target, rows_of_checks(source, manifests, carried))
            _copy_answers(source, target, identity)
        entries = joined_manifest(names, manifests, identity)
        target.set_manifest(**entries, finished=None)
        missing = tuple(_missing(_summarised(target, part, sources)))
        if not missing:
            finished = [manifest.get("shard", manifest)["finished"] for manifest in manifests]
            target.set_manifest(finished=max(finished) if all(finished) else now())
    finally:
        target.close()
    return missing


def _summarised(target: Store, part: Path, sources: Sequence[Store]) -> Run:
    try:
        return summarised(target, part)
    except UserError:
        for source in sources:  # the error would name the hidden folder, which is gone by then
            summarised(source, source.folder or part)
        raise


def _notes(manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    keeps = ["adversarial" in manifest for manifest in manifests]
    if any(keeps) and not all(keeps):
        yield "Not all of the runs kept their adversarial examples, so the merged run has none."


def _copy_rows(source: Store, target: Store, given: Iterator[Row]) -> None:
    """Copy rows.

    Raises:
        UserError: there is another row of the same image already.
    """
    for rows in _parts(given):
        for row in target.add(rows):
            raise UserError(
                f"{source.folder} contradicts another run: {_described(row)} has other results there; the runs were "
                "made with other code, on other machines, or changed. Merge runs that agree."
            )


def _carried(source: Store) -> set[tuple[object, ...]]:
    """Keys of rows that were copied from a smaller radius, which the tables find there themselves.

    Runs with other radii have others, so they are not copied again, unless the runs are shards of one.
    """
    key = "model, norm, eps_text, attack, sample"
    return set(source.read(f"SELECT {key} FROM attacked WHERE success AND NOT forwards AND NOT backwards"))


def _key(row: Row) -> tuple[object, ...] | None:
    return (row.model, row.norm, row.eps_text, row.attack, row.sample) if isinstance(row, _CARRIED) else None


def _described(row: Row) -> str:
    model = "" if isinstance(row, OriginalRecord) else f" of {row.model}"
    if isinstance(row, (CleanRecord, CertificateRecord, OriginalRecord, ProbeRecord, FailedRecord)):
        return f"image {row.sample}{model}"
    if isinstance(row, CorruptedRecord):
        return f"image {row.sample}{model} under {row.corruption}, severity {row.severity},"
    return f"image {row.sample}{model} under {row.attack}, {row.norm} {row.eps_text},"


def _parts(rows: Iterator[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    yield part


def _copy_answers(source: Store, target: Store, identity: dict[str, Any]) -> None:
    """Copy what the models answered at fixed points.

    Raises:
        UserError: a model of the same name and weights gave other answers.
    """
    for role, kind in (("model", "models"), ("surrogate", "surrogates")):
        for entry in identity.get(kind, []):
            answer = source.answer(role, entry["name"])
            known = target.answer(role, entry["name"])
            if answer is None:
                continue
            if known is None:
                target.set_answers([answer])
            elif not _alike(answer, known):
                raise UserError(
                    f"{source.folder} has results of another {role} {entry['name']}: its weights are the same, but its "
                    "answers to the same images are not. Merge runs of the same model, or evaluate it by another name."
                )


def _alike(one: AnswerRecord, other: AnswerRecord) -> bool:
    if one.images != other.images or len(one.logits) != len(other.logits):
        return False
    first, second = (np.frombuffer(each.logits[: len(each.logits) // 4 * 4], "<f4") for each in (one, other))
    scale = max(float(np.nan_to_num(first).max() - np.nan_to_num(first).min()), 1e-6) if first.size else 1.0
    return bool(np.allclose(first, second, rtol=0, atol=_TOLERANCE * scale, equal_nan=True))


def _missing(run: Run) -> Iterator[str]:
    """The parts of the merged plan that no run had."""
    rows = run.results[~run.results["role"].isin(["ensemble", "worst-case", "certified"])]
    if "undecided" not in rows:
        rows = rows.assign(undecided=0)
    for row in rows[rows["undecided"] > 0].itertuples():
        where = "clean" if row.role == "clean" else f"{row.norm} {row.eps_text}, {row.attack}"
        yield f"{row.model}, {where}: {row.undecided} images"
    for entry in run.manifest["identity"]["models"]:
        if entry["name"] not in set(run.results["model"]):
            yield f"{entry['name']}: everything"
