"""Whether the files of a run folder say what its evidence says: each is computed again and compared byte by byte."""

import filecmp
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

from robustkit.evidence.run import Run

from .corruptions import FILE as CORRUPTIONS
from .corruptions import has_corruptions
from .files import write_files

DERIVED = ("results.csv", "samples.csv", "report.html")
# What a page's bytes depend on beside the evidence.
_DRAWN_BY = ("robustkit", "numpy", "pandas")


class DerivedFile(NamedTuple):
    """One file that follows from the evidence."""

    name: str
    state: Literal["equal", "different", "missing", "another version"]


def derived_files(run: Run, folder: Path) -> list[DerivedFile]:
    """The state of each derived file in a run's folder.

    A page that differs is "another version" if the run was made by other versions of what draws it.
    """
    with tempfile.TemporaryDirectory(prefix="robustkit-") as name:
        again = Path(name)
        write_files(run, again)
        return list(_compared(run, folder, again))


def _compared(run: Run, folder: Path, again: Path) -> Iterator[DerivedFile]:
    for name in (*DERIVED, *([CORRUPTIONS] if has_corruptions(run) else [])):
        file = folder / name
        if not file.is_file():
            yield DerivedFile(name, "missing")
        elif filecmp.cmp(file, again / name, shallow=False):
            yield DerivedFile(name, "equal")
        elif name == "report.html" and any(_other_version(run, each) for each in _DRAWN_BY):
            yield DerivedFile(name, "another version")
        else:
            yield DerivedFile(name, "different")


def _other_version(run: Run, package: str) -> bool:
    return bool(run.manifest["environment"].get(package) != version(package))
