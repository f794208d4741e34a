"""One model in several runs on the same images: its attacks side by side, and the worst case over all of them.

Runs are joined only if they are about the same weights and predict the same classes for the clean images. How the
attacks were computed may differ (folding, precision, surrogate gradients): verdicts do not depend on it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from robustkit.evidence.parts import broken_images, column, is_broken
from robustkit.evidence.picture import Picture
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows
from robustkit.evidence.stopped import share_of
from robustkit.evidence.union import UNION, described, members
from robustkit.primitives.mask import unmasked
from robustkit.statistics.medians import median

from ..shared.words import printable
from .image_verdicts import distinct_images
from .result_rows import UNFINISHED, ResultRow, ThreatLabel, result_rows

# Of an entry of the manifest: what it is called, and how attacks are computed.
_NO_VERDICT = {"name", "source", "fold", "channels_last", "compile", "bf16", "bpda", "eot", "straight_through"}

_NONE = np.empty(0, np.int64)


class RunPart(NamedTuple):
    """What a run contributes to a board; models and attacks have the names of the board."""

    rows: tuple[ResultRow, ...]
    samples: SampleRows
    pictures: tuple[Picture, ...]


def same_model(one: Run, other: Run, name: str) -> bool:
    """Whether both runs, on the same images, judge the same model under this name."""
    entries = [_entry(run, name) for run in (one, other)]
    # Certificates of two runs are two statements, each wrong with a chance of its own.
    if entries[0] is None or entries[0] != entries[1] or "smoothing" in entries[0]:
        return False
    clean = [run.results[(run.results["model"] == name) & (run.results["role"] == "clean")] for run in (one, other)]
    first, second = (_predictions(run, name) for run in (one, other))
    common = first.index.intersection(second.index)
    return clean[0]["correct"].tolist() == clean[1]["correct"].tolist() and first[common].equals(second[common])


def parts(runs: Sequence[Run], names: Sequence[Mapping[str, str]], folders: Sequence[str]) -> list[RunPart]:
    """The runs with the names of the board; an attack that occurs twice for one model gets its run's name.

    Args:
        runs: on the same images.
        names: for each run the board's names of its models.
        folders: for each run the name that tells it apart.
    """
    plain = [_part(run, own) for run, own in zip(runs, names, strict=True)]
    times = Counter(
        key for part in plain for key in {(row.model, _root(row.attack)) for row in part.rows if row.threat}
    )
    twice = {key for key, count in times.items() if count > 1}
    return [_told_apart(part, twice, folder) for part, folder in zip(plain, folders, strict=True)]


def joined_rows(
    rows: Sequence[ResultRow], samples: SampleRows, identities: Sequence[Mapping[str, Any]]
) -> tuple[ResultRow, ...]:
    """The rows of a board, with one clean row for each model and one worst case at each threat.

    Args:
        rows: of all runs.
        samples: of all runs.
        identities: of all runs; if one has a precision, so have the intervals of joined rows.
    """
    identity = next((each for each in identities if "precision" in each), {})
    kept: list[ResultRow] = []
    several = {row.model for row in rows if _in_several(row.model, rows)}
    done: set[tuple[str, ThreatLabel | None, str]] = set()
    for row in rows:
        key = row.model, row.threat, row.role
        if row.role in ("clean", "worst-case"):
            if key in done:
                continue
            done.add(key)
            same = [other for other in rows if (other.model, other.threat, other.role) == key]
            kept.append(_worst(row, same, rows, samples, identity) if row.threat and row.model in several else row)
        elif row.role != UNION or row.model not in several:
            kept.append(row)
    for model in dict.fromkeys(row.model for row in rows if row.model in several):
        kept += _union([row for row in kept if row.model == model], samples, model, identity)
    return tuple(kept)


def _union(rows: Sequence[ResultRow], samples: SampleRows, model: str, identity: Mapping[str, Any]) -> list[ResultRow]:
    """The row of one model about the threats of all its runs together; none if they have one norm."""
    worst = [row for row in rows if row.role == "worst-case" and row.threat and not row.threat.is_minimum]
    parts = members([(row.threat.norm, row.threat.eps_text) for row in worst if row.threat])
    if not parts:
        return []
    own = (part for part in samples.parts if part["model"] == model and math.isfinite(part["eps"]))
    broken = len(distinct_images(map(broken_images, own)))
    clean = next(row for row in rows if row.role == "clean")
    correct, undecided = clean.correct - broken, max(row.undecided for row in worst)
    unattacked = min(correct, sum(row.undecided for row in worst if row.is_open))
    changed = _recounted(replace(worst[0], broken=broken), correct, unattacked, identity)
    return [replace(
        changed, threat=ThreatLabel(UNION, described(parts), math.nan), role=UNION, undecided=undecided,
        attacked=max(row.attacked for row in worst), forwards=sum(row.forwards for row in worst),
        backwards=sum(row.backwards for row in worst),
    )]  # fmt: skip


def _in_several(model: str, rows: Sequence[ResultRow]) -> bool:
    return sum(row.model == model and row.role == "clean" for row in rows) > 1


def _worst(
    row: ResultRow, same: Sequence[ResultRow], rows: Sequence[ResultRow], samples: SampleRows,
    identity: Mapping[str, Any],
) -> ResultRow:  # fmt: skip
    """The worst case over all runs; what breaks an image at a smaller radius breaks it here too."""
    assert row.threat is not None
    broken = len(distinct_images(
        broken_images(part) for part in samples.parts
        if (part["model"], part["norm"]) == (row.model, row.threat.norm)
        and (part["eps"] == row.threat.eps if row.threat.is_minimum else part["eps"] <= row.threat.eps)
    ))  # fmt: skip
    clean = next(other.correct for other in rows if other.model == row.model and other.role == "clean")
    correct = clean - broken
    unattacked = min(correct, sum(other.undecided for other in same if other.is_open))
    changed = _recounted(replace(row, broken=broken), correct, unattacked, identity)
    changed = _with_distances(changed, samples, clean) if row.threat.is_minimum else changed
    return replace(
        changed, attacked=max(other.attacked for other in same), undecided=max(other.undecided for other in same),
        forwards=sum(other.forwards for other in same), backwards=sum(other.backwards for other in same),
    )  # fmt: skip


def _recounted(row: ResultRow, correct: int, unattacked: int, identity: Mapping[str, Any]) -> ResultRow:
    """The row with another number of correct images; what single draws do at the worst point of all runs is unknown."""
    share, least = share_of(identity, correct, row.n), share_of(identity, correct - unattacked, row.n)
    return replace(
        row, correct=correct, low=least.low, high=share_of(identity, correct + row.errors, row.n).high,
        method=UNFINISHED if unattacked else share.method, one_draw=math.nan,
    )  # fmt: skip


def _with_distances(row: ResultRow, samples: SampleRows, correct: int) -> ResultRow:
    """The row with the median over the correctly classified images of the nearest adversarial example of all runs."""
    assert row.threat is not None
    nearest: dict[int, float] = {}
    for part in samples.parts:
        if (part["model"], part["norm"], part["eps_text"]) == (row.model, row.threat.norm, row.threat.eps_text):
            distances = column(part, unmasked(row.threat.norm).lower())[is_broken(part)].tolist()
            for image, distance in zip(broken_images(part).tolist(), distances, strict=True):
                nearest[image] = min(distance, nearest.get(image, math.inf))
    found = median([*nearest.values(), *[math.inf] * (correct - len(nearest))])
    return replace(row, distance=found.value, distance_low=found.low, distance_high=found.high)


def _entry(run: Run, name: str) -> dict[str, Any] | None:
    models = run.manifest["identity"]["models"]
    entries = [each for each in models if isinstance(each, Mapping) and printable(str(each.get("name"))) == name]
    if len(entries) != 1 or "sha256" not in entries[0]:
        return None
    return {key: value for key, value in entries[0].items() if key not in _NO_VERDICT}


def _predictions(run: Run, name: str) -> "pd.Series[int]":
    parts = [part for part in run.sample_rows.parts if part["model"] == name]
    samples, places = np.unique(np.concatenate([_NONE, *(part["sample"] for part in parts)]), return_index=True)
    return pd.Series(np.concatenate([_NONE, *(part["clean_pred"] for part in parts)])[places], samples)


def _part(run: Run, names: Mapping[str, str]) -> RunPart:
    return RunPart(
        tuple(replace(row, model=names[row.model]) for row in result_rows(run.results)),
        run.sample_rows.renamed(lambda part: {"model": names[printable(str(part["model"]))]}),
        tuple(replace(picture, model=names[printable(picture.model)]) for picture in run.pictures),
    )


def _told_apart(part: RunPart, twice: set[tuple[str, str]], folder: str) -> RunPart:
    def named(model: str, attack: str) -> str:
        root, slash, member = attack.partition("/")
        return f"{root} ({folder}){slash}{member}" if (model, printable(root)) in twice else attack

    if not twice:
        return part
    return RunPart(
        tuple(replace(row, attack=named(row.model, row.attack)) if row.threat else row for row in part.rows),
        part.samples.renamed(lambda rows: {"attack": named(rows["model"], rows["attack"])}),
        tuple(replace(picture, attack=named(picture.model, picture.attack)) for picture in part.pictures),
    )


def _root(attack: str) -> str:
    return attack.partition("/")[0]
