"""Whether the files of a run folder say what its evidence says: each is computed again and compared byte by byte."""

import filecmp
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

from robustkit.evidence.derived import CORRUPTIONS, DERIVED, PAGE
from robustkit.evidence.run import Run
from robustkit.paths import kind_of

from .corruptions import has_corruptions
from .files import write_files
from .html import write_report
from .name_on_page import called_as_on_page

# What a page's bytes depend on beside the evidence.
_DRAWN_BY = ("robustkit", "numpy", "pandas")


class DerivedFile(NamedTuple):
    """One file that follows from the evidence."""

    name: str
    state: Literal["equal", "different", "missing", "no file", "another version"]
    kind: str | None  # what has its name, as "a folder"; None for nothing


def derived_files(run: Run, folder: Path) -> list[DerivedFile]:
    """The state of each derived file in a run's folder.

    A page that differs is "another version" if the run was made by other versions of what draws it.
    """
    with tempfile.TemporaryDirectory(prefix="robustkit-") as name:
        again = Path(name)
        write_files(run, again)
        if (folder / PAGE).is_file() and not _same(folder / PAGE, again / PAGE):  # a pipe would never answer
            other = called_as_on_page(run, folder / PAGE, again / PAGE)
            if other is not None:
                write_report([other], again / PAGE)
        return list(_compared(run, folder, again))


def _same(file: Path, other: Path) -> bool:
    return filecmp.cmp(file, other, shallow=False)


def _compared(run: Run, folder: Path, again: Path) -> Iterator[DerivedFile]:
    for name in (each for each in DERIVED if each != CORRUPTIONS or has_corruptions(run)):
        file = folder / name
        kind = kind_of(file)
        if kind is None:
            yield DerivedFile(name, "missing", kind)
        elif not file.is_file():
            yield DerivedFile(name, "no file", kind)
        elif _same(file, again / name):
            yield DerivedFile(name, "equal", kind)
        elif name == PAGE and any(_other_version(run, each) for each in _DRAWN_BY):
            yield DerivedFile(name, "another version", kind)
        else:
            yield DerivedFile(name, "different", kind)


def _other_version(run: Run, package: str) -> bool:
    return bool(run.manifest["environment"].get(package) != version(package))
