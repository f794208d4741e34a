"""Conditions on the accuracy on corrupted images, and drops of it below a baseline."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from robustkit.errors import UserError
from robustkit.evidence.corruptions import ALL

from .conditions import CorruptionCondition
from .contestants import Contestant
from .corrupted import CorruptionPair, other_corruptions, paired_tests
from .gate_check import GateCheck, percent_beside, percent_of, reaches, share_check


def corruption_check(model: Contestant, asked: CorruptionCondition, judged_by: str) -> GateCheck:
    """Whether a model is accurate enough on corrupted images.

    Raises:
        UserError: its run has no such corruptions, or no baseline for mCE.
    """
    row = _row(model, asked)
    return _of_error(model, asked, row) if asked.is_error else _of_accuracy(model, asked, row, judged_by)


def corruption_drops(model: Contestant, old: Contestant) -> Iterator[CorruptionPair]:
    """The test of all corruptions together against a baseline, one-sided; none if the baseline has no corruptions.

    Raises:
        UserError: the baseline was judged on other corrupted images, or the run on none.
    """
    if not old.corruption_names:
        return
    if not model.corruption_names:
        raise UserError(
            "The baseline was judged on corrupted images and this run was not; evaluate both with the same "
            "--corruptions."
        )
    if why := other_corruptions(model, old):
        raise UserError(f"The baseline was judged on {why}; evaluate both with the same --corruptions and --seed.")
    whole = model.corruption_names[-1]
    yield from (each for each in paired_tests(model, old, first_is_lower=True) if each.corruption == whole)


def named(corruption: str) -> str:
    """A corruption in words."""
    return "corruptions" if corruption == ALL else f"corruption {corruption}"


def _row(model: Contestant, asked: CorruptionCondition) -> Mapping[str, Any]:
    names, means = model.corruption_names, model.run.corruptions
    if not names:
        raise UserError(
            f"The run has no corrupted images for {asked.text!r}; evaluate with --corruptions generated, or with "
            "robustkit corruptions."
        )
    # The mean over one corruption is that corruption.
    name = names[0] if asked.corruption == ALL and len(names) == 1 else asked.corruption
    if name not in names:
        known = ", ".join(each for each in names if each != ALL)
        raise UserError(f"The run has no corruption for {asked.text!r}; it has {known}.")
    row = means[(means["model"] == model.model) & (means["corruption"] == name)].iloc[0]
    return {str(key): value for key, value in row.items()}


def _of_error(model: Contestant, asked: CorruptionCondition, row: Mapping[str, Any]) -> GateCheck:
    if pd.isna(row["ce"]):
        baseline = model.run.manifest.get("corruption_baseline")
        if baseline is None:
            raise UserError(
                "The run has no mCE; name a baseline: robustkit corruptions ... --corruption-baseline MODEL."
            )
        raise UserError(
            f"The run has no mCE: its baseline {baseline['name']} makes no error on any of the corruptions; take more "
            "images, or another baseline."
        )
    passed = reaches(-row["ce"], -asked.bound)
    measured = percent_beside(-row["ce"], -asked.bound).removeprefix("-")
    word = "at most" if passed else "above"
    reason = f"{measured} against {row['baseline']} (n={row['n']}) is {word} {percent_of(asked.bound)}; no interval"
    return GateCheck(model.name, "mCE", passed, reason)


def _of_accuracy(
    model: Contestant, asked: CorruptionCondition, row: Mapping[str, Any], judged_by: str
) -> GateCheck:  # fmt: skip
    share = float(row["accuracy"]), float(row["ci_low"]), float(row["ci_high"])
    counted = f"n={row['n']}, severities {row['severities']}"
    return share_check(model.name, named(asked.corruption), share, counted, asked.bound, judged_by)
