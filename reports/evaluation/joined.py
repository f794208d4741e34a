"""One model in several runs on the same images: its attacks side by side, and the worst case over all of them.

Runs are joined only if they are about the same weights and predict the same classes for the clean images. How the
attacks were computed may differ (folding, precision, surrogate gradients): verdicts do not depend on it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from robustkit.evidence.run import Picture, Run
from robustkit.statistics.intervals import proportion

from ..shared.words import printable
from .result_rows import UNFINISHED, ResultRow, ThreatLabel, result_rows

# Of an entry of the manifest: what it is called, and how attacks are computed.
_NO_VERDICT = {"name", "source", "fold", "channels_last", "compile", "bf16", "bpda", "eot"}


class RunPart(NamedTuple):
    """What a run contributes to a board; models and attacks have the names of the board."""

    rows: tuple[ResultRow, ...]
    samples: pd.DataFrame
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


def joined_rows(rows: Sequence[ResultRow], samples: pd.DataFrame) -> tuple[ResultRow, ...]:
    """The rows of a board, with one clean row for each model and one worst case at each threat.

    Args:
        rows: of all runs.
        samples: of all runs.
    """
    kept: list[ResultRow] = []
    done: set[tuple[str, ThreatLabel | None, str]] = set()
    for row in rows:
        key = row.model, row.threat, row.role
        if row.role in ("clean", "worst-case"):
            if key in done:
                continue
            done.add(key)
            same = [other for other in rows if (other.model, other.threat, other.role) == key]
            kept.append(_worst(row, same, rows, samples) if row.threat and _in_several(row.model, rows) else row)
        else:
            kept.append(row)
    return tuple(kept)


def _in_several(model: str, rows: Sequence[ResultRow]) -> bool:
    return sum(row.model == model and row.role == "clean" for row in rows) > 1


def _worst(row: ResultRow, same: Sequence[ResultRow], rows: Sequence[ResultRow], samples: pd.DataFrame) -> ResultRow:
    """The worst case over all runs; what breaks an image at a smaller radius breaks it here too."""
    assert row.threat is not None
    own = samples[(samples["model"] == row.model) & (samples["norm"] == row.threat.norm)]
    broken = own[(own["eps"] <= row.threat.eps) & (own["verdict"] == "broken")]["sample"].nunique()
    clean = next(other.correct for other in rows if other.model == row.model and other.role == "clean")
    correct = clean - broken
    undecided = max(other.undecided for other in same)
    unattacked = min(correct, sum(other.undecided for other in same if other.is_open))
    share, least = proportion(correct, row.n), proportion(correct - unattacked, row.n)
    return replace(
        row, correct=correct, low=least.low, high=share.high, method=UNFINISHED if unattacked else share.method,
        attacked=max(other.attacked for other in same), broken=broken, undecided=undecided,
        forwards=sum(other.forwards for other in same), backwards=sum(other.backwards for other in same),
    )  # fmt: skip


def _entry(run: Run, name: str) -> dict[str, Any] | None:
    models = run.manifest["identity"]["models"]
    entries = [each for each in models if isinstance(each, Mapping) and printable(str(each.get("name"))) == name]
    if len(entries) != 1 or "sha256" not in entries[0]:
        return None
    return {key: value for key, value in entries[0].items() if key not in _NO_VERDICT}


def _predictions(run: Run, name: str) -> "pd.Series[int]":
    own = run.samples[run.samples["model"] == name].drop_duplicates("sample")
    return own.set_index("sample")["clean_pred"].sort_index()


def _part(run: Run, names: Mapping[str, str]) -> RunPart:
    models = run.samples["model"].unique()
    return RunPart(
        tuple(replace(row, model=names[row.model]) for row in result_rows(run.results)),
        run.samples.assign(model=run.samples["model"].map({one: names[printable(str(one))] for one in models})),
        tuple(replace(picture, model=names[printable(picture.model)]) for picture in run.pictures),
    )


def _told_apart(part: RunPart, twice: set[tuple[str, str]], folder: str) -> RunPart:
    def named(model: str, attack: str) -> str:
        root, slash, member = attack.partition("/")
        return f"{root} ({folder}){slash}{member}" if (model, printable(root)) in twice else attack

    if not twice:
        return part
    pairs = zip(part.samples["model"], part.samples["attack"], strict=True)
    return RunPart(
        tuple(replace(row, attack=named(row.model, row.attack)) if row.threat else row for row in part.rows),
        part.samples.assign(attack=[named(model, attack) for model, attack in pairs]),
        tuple(replace(picture, attack=named(picture.model, picture.attack)) for picture in part.pictures),
    )


def _root(attack: str) -> str:
    return attack.partition("/")[0]
