"""`robustkit merge`: a folder that can be verified, or one line."""

import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused

EVALUATE = ("evaluate", "-q", *DATA, "-a", "fgsm", "-n", "10")


@pytest.fixture
def runs(place, robustkit):
    assert robustkit(*EVALUATE, *MODEL, "--eps", "0.05", "--out", "one").status == 0
    assert robustkit(*EVALUATE, "-m", "net.py:other", "--eps", "0.1", "--out", "two").status == 0


def test_the_merged_folder_passes_verification_and_can_be_extended(runs, robustkit):
    printed = robustkit("merge", "one", "two", "--out", "both")

    assert printed.status == 0
    assert "No run has these results" in printed.out
    assert robustkit("verify", "both").status == 0

    both = ("-m", "net.py:factory", "-m", "net.py:other", "--eps", "0.05", "--eps", "0.1", "--out", "both")
    assert robustkit(*EVALUATE, *both).status == 0
    assert robustkit("gate", "both", "--fail-under", "clean>=0").status == 0


def test_what_cannot_be_merged_is_one_line(runs, robustkit):
    refused(robustkit("merge", "one", "--out", "both"), "two runs")
    refused(robustkit("merge", "one", "two", "--out", "two"), "two exists")
    refused(robustkit("merge", "one", "nowhere", "--out", "both"), "nowhere", "run folder")
