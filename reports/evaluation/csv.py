"""results.csv and samples.csv: the two tables of a run, the same bytes for the same evidence."""

from pathlib import Path

from robustkit.evidence.run import RESULT_COLUMNS, Run
from robustkit.host.files import write_pieces

from ..shared.csv import write_frame
from .sample_lines import sample_pieces


def write_csv(run: Run, folder: Path) -> None:
    """Write results.csv and samples.csv of `run` into `folder`.

    Columns and rows are in the order of `Run`; floats are the shortest text that reads back as the same number; unknown
    values are empty.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_frame(folder / "results.csv", run.results, RESULT_COLUMNS)
    write_pieces(folder / "samples.csv", sample_pieces(run.sample_rows))
