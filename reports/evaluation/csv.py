"""results.csv and samples.csv: a run's two frames, byte for byte the same for the same evidence."""

from pathlib import Path
from typing import Final

from robustkit.evidence.run import Run

from ..shared.csv import write_frame

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
    write_frame(folder / "results.csv", run.results, RESULT_COLUMNS)
    write_frame(folder / "samples.csv", run.samples, SAMPLE_COLUMNS)
