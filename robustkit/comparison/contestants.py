"""The models of finished runs, and which images each gets right under which threat."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustkit.errors import UserError
from robustkit.evidence import corruptions
from robustkit.evidence.failed import ERRORS
from robustkit.evidence.rows import NO_VERDICT
from robustkit.evidence.run import Run
from robustkit.evidence.stopped import share_of
from robustkit.evidence.union import UNION, members
from robustkit.primitives.threat import is_minimum, radius_under
from robustkit.statistics.intervals import Proportion
from robustkit.statistics.paired import PairedCounts, paired_counts

_CERTIFIED = "certified"


class ThreatKey(NamedTuple):
    """A threat model by its numbers, so that 8/255 and its decimals are the same; ("-", 0) is none: clean images.

    All threats of a run together have the norm "union", and the largest radius of each norm as `parts`.
    """

    norm: str
    eps: float
    parts: tuple[tuple[str, float], ...] = ()


CLEAN = ThreatKey("-", 0.0)


def called(threat: ThreatKey, eps_text: str) -> str:
    """A threat in words, its radius as a run writes it."""
    if threat.norm == UNION:
        return f"{UNION} ({eps_text})"
    return "clean" if threat == CLEAN else f"{threat.norm} {eps_text}"


@dataclass(frozen=True)
class Contestant:
    """One model of one finished run."""

    name: str  # unique among the contestants
    model: str
    run: Run

    @cached_property
    def threats(self) -> dict[ThreatKey, str]:
        """What it was evaluated under, with the radius as its run writes it; without runs to the nearest error."""
        rows = self.run.results[self._rows & (self.run.results["role"] == "worst-case")]
        named = zip(rows["norm"], rows["eps"], rows["eps_text"], strict=True)
        found = {CLEAN: "0"} | {ThreatKey(norm, eps): text for norm, eps, text in named if not is_minimum(text)}
        texts = self.run.results.loc[self._rows & (self.run.results["role"] == UNION), "eps_text"].tolist()
        return found | {self._union_key(): text for text in texts}

    @property
    def measured(self) -> list[str]:
        """The norms in which its run looked for the nearest errors."""
        rows = self.run.results[self._rows & (self.run.results["role"] == "worst-case")]
        return [norm for norm, text in zip(rows["norm"], rows["eps_text"], strict=True) if is_minimum(text)]

    @property
    def union(self) -> ThreatKey | None:
        """All threats of the run together; None if it has one norm."""
        return next((threat for threat in self.threats if threat.norm == UNION), None)

    def _union_key(self) -> ThreatKey:
        parts = members(self.run.manifest["identity"]["threats"])
        return ThreatKey(UNION, 0.0, tuple(sorted((norm, radius_under(norm, text)) for norm, text in parts)))

    @property
    def _rows(self) -> "pd.Series[bool]":
        return self.run.results["model"] == self.model

    def right(self, threat: ThreatKey) -> "pd.Series[bool]":
        """By image, whether it is classified correctly: without an attack, or under all attacks of the run.

        Without the images that have no verdict.
        """
        return self._right[threat]

    @cached_property
    def _right(self) -> "dict[ThreatKey, pd.Series[bool]]":
        clean = (self._samples["label"] == self._samples["clean_pred"]).groupby(self._samples["sample"]).all()
        if clean.empty and len(self.corrupted):  # a run without attacks
            clean = self.corruption_counts(corruptions.CLEAN).set_index("sample")["correct"] == 1
        standing = self._samples["verdict"] == "robust"
        attacked = standing.groupby([self._samples[name] for name in ("norm", "eps", "sample")]).all()
        plain = [threat for threat in self.threats if threat.norm not in (CLEAN.norm, UNION)]
        right = {CLEAN: clean, **{threat: attacked.xs((threat.norm, threat.eps)) for threat in plain}}
        if self.union is not None:
            right[self.union] = pd.concat([right[threat] for threat in plain], axis=1).all(axis=1)
        return right

    def share(self, threat: ThreatKey) -> Proportion:
        """The share of its images that are right, with the interval of its run, as its results have it."""
        right, errors, identity = self.right(threat), self.errors, self.run.manifest["identity"]
        share = share_of(identity, int(right.sum()), len(right) + errors)
        return share._replace(high=share_of(identity, int(right.sum()) + errors, len(right) + errors).high)

    def count(self, threat: ThreatKey) -> int:
        """How many images that share is of."""
        return len(self.right(threat)) + self.errors

    @cached_property
    def errors(self) -> int:
        """How many of its images have no verdict, because they ended every process that worked on them."""
        results = self.run.results
        return 0 if ERRORS not in results else int(results.loc[self._rows, ERRORS].max())

    def labels(self) -> Mapping[int, int]:
        """The class of each image."""
        mine = (self.corrupted if self._samples.empty else self._samples).drop_duplicates("sample")
        return dict(zip(mine["sample"].tolist(), mine["label"].tolist(), strict=True))

    @cached_property
    def corrupted(self) -> pd.DataFrame:
        """Its rows of `Run.corrupted`; empty without corruptions."""
        frame = self.run.corrupted
        own: pd.DataFrame = frame[frame["model"] == self.model] if len(frame) else frame
        return own

    @property
    def corruption_names(self) -> list[str]:
        """The corruptions of its run, and "all" last if there are several."""
        if self.corrupted.empty:
            return []
        means = self.run.corruptions
        return [str(name) for name in means.loc[means["model"] == self.model, "corruption"]]

    def corruption_counts(self, name: str) -> pd.DataFrame:
        """By image under one corruption, or all: sample, severities judged, how many are correct, hash of the pictures.

        Only images that have a verdict under each corruption and severity.
        """
        own = self.corrupted[self.corrupted["corruption"] == name]
        if name == corruptions.ALL:
            own = self.corrupted[self.corrupted["corruption"] != corruptions.CLEAN]
        sums: pd.DataFrame = own.groupby("sample", as_index=False)[["severities", "correct", "pixels"]].sum()
        whole: pd.DataFrame = sums[sums["severities"] == sums["severities"].max()]
        return whole

    def note(self, threat: ThreatKey) -> str:
        """Why the result is not reliable; empty if nothing says so."""
        results = self.run.results
        if "note" not in results:
            return ""
        here = (results["norm"] == threat.norm) & ((results["eps"] == threat.eps) | (threat.norm == UNION))
        rows = results[self._rows & here]
        notes = [note for note in rows["note"] if isinstance(note, str) and note]
        return notes[0] if notes else ""

    @property
    def attacks(self) -> list[str]:
        """Names of the attacks of its run; of an ensemble its own name."""
        return list(
            dict.fromkeys(entry["name"].partition("/")[0] for entry in self.run.manifest["identity"]["attacks"])
        )

    def attacked_as(self, other: "Contestant") -> bool:
        """Whether both runs made the same attacks, with the same hyper-parameters."""
        straight = (each._entry.get("straight_through", False) for each in (self, other))
        return _attacks(self.run) == _attacks(other.run) and len(set(straight)) == 1

    @property
    def rejects(self) -> bool:
        """Whether it was evaluated with rejections, so that a rejected adversarial example does not count as broken."""
        return bool(self._entry.get("rejects", False))

    @property
    def _entry(self) -> Mapping[str, Any]:
        models: list[dict[str, Any]] = self.run.manifest["identity"]["models"]
        return next(entry for entry in models if entry["name"] == self.model)

    @cached_property
    def _samples(self) -> pd.DataFrame:
        samples = self.run.samples
        own = (samples["model"] == self.model) & (samples["attack"] != _CERTIFIED) & (samples["verdict"] != NO_VERDICT)
        return samples[own]


def contestants(runs: Sequence[Run]) -> list[Contestant]:
    """Every model of every run, named by the model alone where that tells them apart.

    Raises:
        UserError: a run is unfinished, or lacks verdicts.
    """
    pairs = [(run, entry["name"]) for run in runs for entry in run.manifest["identity"]["models"]]
    for run in runs:
        if run.manifest.get("shard") is not None:
            raise UserError(f"{_where(run)} is a shard of a run; join all shards with robustkit merge first.")
        if run.manifest["finished"] is None:
            raise UserError(f"{_where(run)} is unfinished; repeat the command that made it, which continues it.")
        if "undecided" in run.results and run.results["undecided"].any():
            raise UserError(
                f"{_where(run)} is marked as finished, but lacks verdicts; repeat the command that made it, which "
                "computes them."
            )
    names = [model for _, model in pairs]
    found = []
    for run, model in pairs:
        name = model if names.count(model) == 1 else f"{run.name or _where(run)}/{model}"
        found.append(Contestant(name, model, run))
    return _told_apart(found)


def check_same_images(first: Contestant, second: Contestant) -> bool:
    """Whether two runs are known to have the same images; false if only their labels can be compared.

    Raises:
        UserError: the images differ, or none is in both runs.
    """
    one, two = (each.run.manifest["identity"]["dataset"] for each in (first, second))
    if one["sha256"] == two["sha256"]:
        return True
    if (one["name"], one["split"]) != (two["name"], two["split"]):
        raise UserError(
            f"{first.name} was evaluated on {_data(one)}, {second.name} on {_data(two)}; only results on the same "
            "images can be compared."
        )
    labels, others = first.labels(), second.labels()
    shared = labels.keys() & others.keys()
    other_labels = any(labels[number] != others[number] for number in shared)
    if not shared or other_labels or _same_numbers(first, second):
        raise UserError(
            f"{first.name} and {second.name} were evaluated on different images of {_data(one)}; evaluate both on the "
            "same ones."
        )
    return False


def _same_numbers(first: Contestant, second: Contestant) -> bool:
    """Whether two runs have images of the same numbers, so that one hash of them is all that there is to compare.

    Images without a verdict are not listed: there are no more numbers than each run has images.
    """
    n, other = (each.run.manifest["identity"]["n"] for each in (first, second))
    return bool(n == other and len(first.labels().keys() | second.labels().keys()) <= n)


def left_out(models: Sequence[Contestant]) -> Iterator[str]:
    """A sentence for each model of which images have no verdict."""
    for each in models:
        if each.errors:
            images = f"{each.errors} image{'s' if each.errors > 1 else ''}"
            yield (
                f"{each.name}: {images} ended every process and {'have' if each.errors > 1 else 'has'} no verdict: "
                "left out of its pairs, and counted as not correct in its accuracy."
            )


def verdicts_on_shared_images(first: Contestant, second: Contestant, threat: ThreatKey) -> PairedCounts:
    """How many of the images that both runs have each model gets right."""
    one, two = first.right(threat).align(second.right(threat), join="inner")
    return paired_counts(one.to_numpy(dtype=bool), two.to_numpy(dtype=bool))


def _told_apart(found: list[Contestant]) -> list[Contestant]:
    names = [each.name for each in found]
    if len(set(names)) == len(names):
        return found
    numbered = []
    for place, each in enumerate(found, 1):
        name = f"{each.name} ({place})" if names.count(each.name) > 1 else each.name
        numbered.append(Contestant(name, each.model, each.run))
    return numbered


def _attacks(run: Run) -> str:
    identity = run.manifest["identity"]
    attacks = sorted(identity["attacks"], key=lambda entry: str(entry["name"]))
    return json.dumps([attacks, identity.get("surrogates"), identity.get("audit")], sort_keys=True)


def _where(run: Run) -> str:
    return "A run in memory" if run.folder == Path() else f"The run {run.folder}"


def _data(dataset: Mapping[str, str]) -> str:
    return f"{dataset['name']} {dataset['split']}".strip()
