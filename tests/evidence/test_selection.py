"""A part of a run has the numbers that were asked for, and no others."""

import pytest

from robustkit import evaluate
from robustkit.evidence.selection import selected
from tests.small import cnn, data, linear


@pytest.fixture(scope="module")
def run():
    return evaluate([linear(), cnn()], names=["linear", "cnn"], dataset=data(10), attacks="fgsm", norm="L2",
                    eps=["0.1", "1"], corruptions=["contrast", "fog"], severities=[1, 3], checks="none")  # fmt: skip


def test_the_means_over_corruptions_of_another_model_were_shown(run):
    part = selected(run, models=["linear"])

    assert set(part.corruptions["model"]) == set(part.results["model"]) == {"linear"}
    assert len(part.corruptions) == 3


@pytest.mark.parametrize("asked", [{"radii": ["1"]}, {"norms": ["L2"]}, {"attacks": ["fgsm"]}])
def test_a_severity_was_taken_for_a_radius(run, asked):
    part = selected(run, **asked)

    assert set(part.results["norm"]) == {"-", "L2"}
    assert part.corruptions.empty
