from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from robustkit.reports import write_csv

from robustkit.evidence.run import Run

# Before 3.1 pandas reads a last digit wrong unless it is told; now it warns of being told.
pandas_version = tuple(map(int, pd.__version__.split(".")[:2]))
EXACTLY = {"float_precision": "round_trip"} if pandas_version < (3, 1) else {}


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(run, folder)
    return folder


@pytest.mark.parametrize("name", ["results", "samples"])
def test_pandas_reads_back_equal_values(name: str, run: Run, folder: Path) -> None:
    frame = getattr(run, name)

    read = pd.read_csv(
        folder / f"{name}.csv", keep_default_na=False, na_values=[""], dtype=dict(frame.dtypes), **EXACTLY
    )

    pd.testing.assert_frame_equal(read, frame, check_exact=True)


def test_the_order_of_columns_in_memory_does_not_matter(run: Run, folder: Path, tmp_path: Path) -> None:
    backwards = replace(run, results=run.results[run.results.columns[::-1]])

    write_csv(backwards, tmp_path)

    assert (tmp_path / "results.csv").read_bytes() == (folder / "results.csv").read_bytes()


def test_lines_end_alike_everywhere_and_the_unknown_is_empty(folder: Path) -> None:
    results = (folder / "results.csv").read_bytes()

    assert b"\r" not in results
    assert b"nan" not in results.lower()
    assert results.splitlines()[1].split(b",")[14:17] == [b"0", b"0", b""]  # the clean row has no success rate


def test_floats_are_the_shortest_text_that_reads_back(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(n=3, models=("m",), threats=(("Linf", 0.1 + 0.2, "0.3"),))

    write_csv(run, tmp_path)

    assert b",0.30000000000000004," in (tmp_path / "results.csv").read_bytes()
