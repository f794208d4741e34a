"""`robustkit verify`: a folder that nobody touched passes, one that somebody edited does not."""

import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused


@pytest.fixture
def made(place, robustkit):
    assert robustkit("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "made").status == 0
    return place / "made"


def test_an_untouched_run_passes(made, robustkit):
    printed = robustkit("verify", "made")

    assert printed.status == 0
    assert [line.split()[0] for line in printed.out.splitlines()] == ["pass"] * 4


@pytest.mark.parametrize("name", ["results.csv", "samples.csv", "report.html"])
def test_an_edited_file_is_found_and_written_again(name, made, robustkit):
    before = (made / name).read_bytes()
    (made / name).write_bytes(before.replace(b"0", b"9", 1))

    assert robustkit("verify", "made").status == 1
    assert robustkit("report", "made").status == 0
    assert robustkit("verify", "made").status == 0
    assert (made / name).read_bytes() == before


def test_a_missing_file_is_no_lie(made, robustkit):
    (made / "samples.csv").unlink()
    printed = robustkit("verify", "made")

    assert printed.status == 0
    assert "not there" in printed.out


def test_what_is_no_run_is_one_line(robustkit, place):
    refused(robustkit("verify", "nowhere"), "nowhere", "run folder")
