"""The files of an evaluation beside its evidence, as the command line and Python write them."""

from pathlib import Path

from robustkit.evidence.derived import PAGE
from robustkit.evidence.run import Run

from .corruptions import write_corruptions
from .csv import write_csv
from .html import write_report


def write_files(run: Run, folder: Path) -> None:
    """Write results.csv, samples.csv, report.html and, if corrupted images were judged, corruptions.csv.

    Raises:
        UserError: the folder cannot be written.
    """
    write_csv(run, folder)
    write_corruptions(run, folder)
    write_report([run], folder / PAGE)
