"""The table of an ablation: one row per cell, with its change from the baseline and the interval of that change.

Cells have the same test images and seeds, so the comparison is paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustkit.statistics.crossed_effects import Interval, average, difference

from .grid import Cell

STATUSES = ("finished", "collapsed", "diverged")  # of one training
MASKED = 0.05  # a cell is flagged if its accuracy under cross-entropy exceeds the worst case by more


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of one training."""

    seed: int
    status: str  # one of `STATUSES`
    note: str
    clean: NDArray[np.bool_]  # [images] correctly classified test images; empty where it diverged
    ce: NDArray[np.bool_]  # [images] also under the attack on cross-entropy
    worst: NDArray[np.bool_]  # [images] also under the attack on the margin
    best_epoch: int
    learning_share: float
    seconds_per_epoch: float
    outer_mib: float
    attack_mib: float
    seconds: float

    @property
    def judged(self) -> bool:
        """Whether the training ended with a network."""
        return self.status != "diverged"


def table(outcomes: Mapping[Cell, Sequence[TrainingOutcome]], planned: int) -> pd.DataFrame:
    """One row per cell with at least one outcome, the baseline first.

    Columns: `cell` and `changes` (how many axes differ from the baseline), one for each axis, `status`, `seeds` (run),
    `planned`, `n` (test images); `clean`, `ce` and `worst` (means over seeds and images) with the ends of their
    intervals in `*_low` and `*_high`, `worst_least` and `worst_most` over seeds; `clean_change` and `worst_change`
    against the baseline, likewise; `gap` (`ce - worst`) and `masked`, whether it is large; `best_epoch` of each seed;
    `learning_share` of the weights, `seconds_per_epoch`, `outer_mib` and `attack_mib`. NaN without a network.

    Args:
        outcomes: by cell; the first cell is the baseline.
        planned: number of seeds per cell.
    """
    cells = [cell for cell, trainings in outcomes.items() if trainings]
    if not cells:
        return pd.DataFrame()
    baseline = outcomes[cells[0]] if not cells[0].changed else []
    return pd.DataFrame([_row(cell, outcomes[cell], baseline, planned) for cell in cells])


def runs_table(outcomes: Mapping[Cell, Sequence[TrainingOutcome]]) -> pd.DataFrame:
    """One row per training."""
    return pd.DataFrame([
        {"cell": cell.name, "seed": one.seed, "status": one.status, "clean": _share(one.clean), "ce": _share(one.ce),
         "worst": _share(one.worst), "best_epoch": one.best_epoch, "seconds_per_epoch": one.seconds_per_epoch,
         "note": one.note}
        for cell, trainings in outcomes.items() for one in trainings
    ])  # fmt: skip


def _row(
    cell: Cell, trainings: Sequence[TrainingOutcome], baseline: Sequence[TrainingOutcome], planned: int
) -> dict[str, object]:
    judged = [one for one in trainings if one.judged]
    clean, ce, worst = (_mean(judged, kind) for kind in ("clean", "ce", "worst"))
    gap = ce.value - worst.value
    shares = [_share(one.worst) for one in judged]
    return {
        "cell": cell.name,
        "changes": len(cell.changed),
        **{axis.name: cell.spelled(number) for number, axis in enumerate(cell.axes)},
        "status": _status(trainings),
        "seeds": len(trainings),
        "planned": planned,
        "n": len(judged[0].clean) if judged else 0,
        **_columns("clean", clean),
        "ce": ce.value,
        **_columns("worst", worst),
        "worst_least": min(shares, default=np.nan),
        "worst_most": max(shares, default=np.nan),
        **_columns("clean_change", _paired(cell, judged, baseline, "clean")),
        **_columns("worst_change", _paired(cell, judged, baseline, "worst")),
        "gap": gap,
        "masked": bool(gap > MASKED),
        "best_epoch": " ".join(str(one.best_epoch) for one in judged),
        "learning_share": trainings[0].learning_share,
        "seconds_per_epoch": float(np.median([one.seconds_per_epoch for one in trainings])),
        "outer_mib": trainings[0].outer_mib,
        "attack_mib": trainings[0].attack_mib,
    }


def _paired(cell: Cell, judged: Sequence[TrainingOutcome], baseline: Sequence[TrainingOutcome], kind: str) -> Interval:
    """The change from the baseline, over the seeds that both have."""
    base = {one.seed: one for one in baseline if one.judged}
    pairs = [(one, base[one.seed]) for one in judged if one.seed in base]
    if not cell.changed or not pairs:
        return Interval(np.nan, np.nan, np.nan)
    own, other = (np.stack([getattr(pair[side], kind) for pair in pairs]) for side in (0, 1))
    return difference(own, other)


def _mean(judged: Sequence[TrainingOutcome], kind: str) -> Interval:
    if not judged:
        return Interval(np.nan, np.nan, np.nan)
    return average(np.stack([getattr(one, kind) for one in judged]))


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _status(trainings: Sequence[TrainingOutcome]) -> str:
    """One word if all seeds agree, else the count of each."""
    counts = {word: sum(one.status == word for one in trainings) for word in ("finished", "collapsed", "diverged")}
    present = {word: count for word, count in counts.items() if count}
    return next(iter(present)) if len(present) == 1 else ", ".join(f"{count} {word}" for word, count in present.items())


def _share(correct: NDArray[np.bool_]) -> float:
    return float(correct.mean()) if len(correct) else float("nan")
