"""results.csv and samples.csv: a run's two frames, byte for byte the same for the same evidence."""

from pathlib import Path
from typing import Final

import pandas as pd

from robustkit.evidence.run import Run

from ..shared.files import write_text

RESULT_COLUMNS: Final = [
    *("model", "dataset", "split", "norm", "eps", "eps_text", "attack", "role", "n", "correct", "accuracy"),
    *("ci_low", "ci_high", "ci_method", "attacked", "broken", "success_rate", "forwards", "backwards"),
]
SAMPLE_COLUMNS: Final = [
    *("model", "norm", "eps", "eps_text", "attack", "sample", "label", "clean_pred", "verdict", "adv_pred"),
    *("question", "restart", "target", "linf", "l2", "l1", "l0", "forwards", "backwards"),
]


def write_csv(run: Run, folder: Path) -> None:
    """Put results.csv and samples.csv of `run` into `folder`.

    Columns and rows stand in the order of `Run`; floats are the shortest text that reads back as the same number;
    what is unknown is empty.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_text(folder / "results.csv", csv_text(run.results, RESULT_COLUMNS))
    write_text(folder / "samples.csv", csv_text(run.samples, SAMPLE_COLUMNS))


def csv_text(frame: pd.DataFrame, columns: list[str]) -> str:
    """The frame as CSV: `columns` first, then any others by name."""
    extra = sorted(set(map(str, frame.columns)) - set(columns))
    ordered = frame[[column for column in columns if column in frame.columns] + extra]
    return ordered.to_csv(index=False, lineterminator="\n", na_rep="")
