"""Which models differ: paired tests on the same images, corrected for their number.

McNemar's exact test, Newcombe's interval and Holm's correction are in `robustkit.statistics.paired`.
"""

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

import pandas as pd

from robustkit.errors import UserError
from robustkit.evidence.own_features import OWN_FEATURES, own_features
from robustkit.evidence.reading import load_run
from robustkit.evidence.run import Run
from robustkit.primitives.threat import MINIMUM
from robustkit.statistics.paired import PairedCounts, holm, mcnemar, paired_difference

from .contestants import (
    CLEAN,
    Contestant,
    ThreatKey,
    called,
    check_same_images,
    contestants,
    left_out,
    verdicts_on_shared_images,
)
from .corrupted import corrupted_pairs, corruption_notes
from .farther import farther

LEVEL: Final = 0.05
ALIKE: Final = "no significant difference"
_MOST = 40  # models: their pairs fill a table that somebody can still read


class PairTest(NamedTuple):
    """Two models under one threat."""

    threat: ThreatKey
    eps_text: str
    first: str
    second: str
    counts: PairedCounts


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Models of finished runs, compared on the same images; `print(comparison)` shows both tables.

    `ranking` has a row for each threat and model, the highest accuracy first: norm ("-" for clean images, "union" for
    all threats of a run together, where runs have the same ones), eps (NaN for a union), eps_text, model, n, correct,
    accuracy, ci_low, ci_high, and group: models that share a letter do not differ significantly.

    `pairs` has a row for each threat and pair of models: norm, eps, eps_text, first, second, n, both, first_only,
    second_only, neither (images that both, only one or none gets right), difference (accuracy of the first minus that
    of the second), ci_low, ci_high (95 %), p, p_holm (corrected for all tests of this table), verdict ("first",
    "second" or "no significant difference", at a level of 5 % for the whole table).

    `distances` has a row for each norm and pair of models of runs to the nearest adversarial example (`--eps minimum`),
    if there are any: norm, first, second, n, first_farther, second_farther (images whose nearest adversarial example is
    farther away for one of them), difference (median over images of the distance of the first minus that of the
    second), ci_low, ci_high (95 %; infinite where it reaches images without a known adversarial example), p (of the
    exact sign test), p_holm, verdict.

    `corruptions` has a row for each corruption and pair of models that were judged on the same corrupted images, and
    one for "all" corruptions, if there are any: corruption, first, second, n, first_better, second_better (images of
    which one of them gets more corrupted versions right), difference (mean share of versions that the first gets right
    minus that of the second), ci_low, ci_high (95 %), p (of the exact sign-flip test), p_holm, verdict.

    `notes` are sentences that a reader must know: other attacks, other images, results that are not reliable.
    """

    ranking: pd.DataFrame
    pairs: pd.DataFrame
    notes: tuple[str, ...]
    distances: pd.DataFrame = field(default_factory=pd.DataFrame)
    corruptions: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __repr__(self) -> str:
        """One line: how many models and tests."""
        models = self.ranking["model"].nunique()
        return f"<Comparison of {models} models in {len(self.pairs)} paired tests>"

    def __str__(self) -> str:
        """The tables that `robustkit compare` prints."""
        return str(import_module("robustkit.reports").comparison_text(self))

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"


def compare(*runs: Run | str | Path) -> Comparison:
    """Compare all models of finished runs with each other, on the images that they share.

    Args:
        runs: runs or their folders; one is enough if it has several models.

    Raises:
        UserError: fewer than two models, other images, or an unfinished run.
    """
    loaded = [each if isinstance(each, Run) else load_run(each) for each in runs]
    models = contestants(loaded)
    if len(models) < 2:
        raise UserError("A comparison needs two models; give a second run.")
    if len(models) > _MOST:
        raise UserError(f"{len(models)} models are {len(models) * (len(models) - 1) // 2} pairs; give {_MOST} at most.")
    tests = list(_tests(models))
    distances, corrupted = farther(models, LEVEL, ALIKE), corrupted_pairs(models, LEVEL, ALIKE)
    notes = [*_notes(models), *corruption_notes(models)]
    if distances.empty and corrupted.empty and all(test.threat == CLEAN for test in tests):
        notes.insert(0, _only_clean(models))
    pairs = _pairs(tests)
    return Comparison(_ranking(models, tests, pairs), pairs, tuple(notes), distances, corrupted)


def _tests(models: Sequence[Contestant]) -> Iterator[PairTest]:
    threats = sorted(set().union(*(each.threats for each in models)))
    for first, second in combinations(models, 2):
        check_same_images(first, second)
    for threat in threats:
        for first, second in combinations([each for each in models if threat in each.threats], 2):
            counts = verdicts_on_shared_images(first, second, threat)
            text = next(each for each in models if threat in each.threats) if threat.parts else first
            yield PairTest(threat, text.threats[threat], first.name, second.name, counts)


def _pairs(tests: Sequence[PairTest]) -> pd.DataFrame:
    p_values = [mcnemar(test.counts) for test in tests]
    rows = []
    for test, p, corrected in zip(tests, p_values, holm(p_values), strict=True):
        counts, difference = test.counts, paired_difference(test.counts)
        better = "first" if difference.value > 0 else "second"
        rows.append({
            "norm": test.threat.norm, "eps": _eps(test.threat), "eps_text": test.eps_text, "first": test.first,
            "second": test.second, "n": counts.n, **counts._asdict(), "difference": difference.value,
            "ci_low": difference.low, "ci_high": difference.high, "p": p, "p_holm": corrected,
            "verdict": better if corrected < LEVEL else ALIKE,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _ranking(models: Sequence[Contestant], tests: Sequence[PairTest], pairs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for threat in sorted({test.threat for test in tests}):
        own = pairs[[test.threat == threat for test in tests]]
        entered = {each.name: each for each in models if each.name in {*own["first"], *own["second"]}}
        right = {name: each.right(threat) for name, each in entered.items()}
        ordered = sorted(entered, key=lambda name: -entered[name].share(threat).value)
        letters = _letters(ordered, own[own["verdict"] == ALIKE][["first", "second"]].to_numpy().tolist())
        for name in ordered:
            k, n = int(right[name].sum()), entered[name].count(threat)
            share = entered[name].share(threat)
            rows.append({
                "norm": threat.norm, "eps": _eps(threat), "eps_text": _text(entered[name], threat, own), "model": name,
                "n": n, "correct": k, "accuracy": share.value, "ci_low": share.low, "ci_high": share.high,
                "group": letters[name],
            })  # fmt: skip
    return pd.DataFrame(rows)


def _eps(threat: ThreatKey) -> float:
    """The radius as the tables have it: a union has none."""
    return math.nan if threat.parts else threat.eps


def _text(model: Contestant, threat: ThreatKey, pairs: pd.DataFrame) -> str:
    # The text is what tells one union from another, so all models of one have the same.
    return str(pairs["eps_text"].iloc[0]) if threat.parts else model.threats[threat]


def _letters(ordered: Sequence[str], alike: Sequence[Sequence[str]]) -> dict[str, str]:
    """Letters that two models share exactly if they do not differ significantly: one for each largest group."""
    same = {frozenset(pair) for pair in alike} | {frozenset([name]) for name in ordered}
    groups: list[list[str]] = []
    for name in ordered:
        # Each group that the name fits into grows; one that it fits into in part gives a new group.
        grown = [[*(other for other in group if frozenset([name, other]) in same), name] for group in groups]
        candidates = [*groups, *grown, [name]]
        groups = [group for place, group in enumerate(candidates) if not _covered(group, place, candidates)]
    groups.sort(key=lambda group: [ordered.index(name) for name in group])
    return {name: "".join(_letter(place) for place, group in enumerate(groups) if name in group) for name in ordered}


def _covered(group: Sequence[str], place: int, candidates: Sequence[Sequence[str]]) -> bool:
    """Whether another group holds all of this one."""
    return any(
        set(group) < set(other) or (set(group) == set(other) and place > number)
        for number, other in enumerate(candidates) if number != place
    )  # fmt: skip


def _letter(place: int) -> str:
    return ascii_lowercase[place % 26] * (1 + place // 26)


def _only_clean(models: Sequence[Contestant]) -> str:
    """The sentence about models that have nothing but their images in common."""
    asked = [", ".join(_conditions(each)) or "no attack" for each in models]
    each_its_own = "; ".join(f"{one.name}: {text}" for one, text in zip(models, asked, strict=True))
    return (
        "Only clean images are compared, because no two models share a norm and radius, a norm in which both measured "
        f"distances, or corruptions ({each_its_own}); evaluate them under the same ones."
    )


def _conditions(model: Contestant) -> Iterator[str]:
    """What a model was evaluated under beside clean images, in words."""
    yield from (called(threat, text) for threat, text in model.threats.items() if not threat.parts and threat != CLEAN)
    yield from (f"{norm} {MINIMUM}" for norm in model.measured)
    if len(model.corrupted):
        yield "corruptions"


def _notes(models: Sequence[Contestant]) -> Iterator[str]:
    if not all(models[0].attacked_as(each) for each in models):
        texts = dict.fromkeys(f"{each.name}: {', '.join(each.attacks)}" for each in models)
        yield f"The runs used different attacks or settings of them, which may be the difference ({'; '.join(texts)})."
    if not all(check_same_images(first, second) for first, second in combinations(models, 2)):
        yield (
            "The runs have different numbers of images; each pair is tested on those in both, by their numbers. Only "
            "their labels could be checked: they agree."
        )
    if own_features(each.run.manifest["identity"] for each in models):
        yield OWN_FEATURES
    if rejecting := ", ".join(each.name for each in models if each.rejects):
        yield (
            f"With rejections (--rejects): {rejecting}. There an image that is rejected only under attack counts as "
            "right; of a model without --rejects it would count as wrong."
        )
    yield from left_out(models)
    stopped = [each.name for each in models if "precision" in each.run.manifest["identity"]]
    if stopped:
        yield (
            f"The run of {', '.join(stopped)} stopped when its intervals were narrow enough. The p-values, and the "
            "intervals of differences, are those of a number of images that was fixed before."
        )
    for each in models:
        for threat, text in each.threats.items():
            if note := each.note(threat):
                yield f"{each.name}, {called(threat, text)}: not reliable ({note})."
