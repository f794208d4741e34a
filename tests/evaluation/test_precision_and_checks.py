"""Checks of a run that stops by itself: they look at the images that it took, as in a run of just these."""

import pytest

from tests.evaluation.test_precision import Stopping
from tests.small import data, evaluated, evidence, linear, only

SETTINGS = {"dataset": data(400), "attacks": "noise:queries=2", "eps": "0.02", "checks": "standard"}


@pytest.fixture(autouse=True)
def cheap_rules(monkeypatch):
    cheap = ("normalisation", "gradient_direction", "restarts", "eight_bits")
    monkeypatch.setattr("robustkit.checks.register.RULES", only(*cheap))


def test_the_images_that_were_taken_are_checked(tmp_path):
    stopped = evaluated(linear(), tmp_path / "stopped", precision=0.08, **SETTINGS)
    n = int(stopped.results["n"].max())
    whole = evaluated(linear(), tmp_path / "whole", samples=n, **SETTINGS)

    assert n < 400
    assert stopped.checks == whole.checks
    assert evidence(tmp_path / "stopped")["checked"] == evidence(tmp_path / "whole")["checked"]


def test_a_tighter_precision_checks_the_images_of_all_looks(tmp_path):
    evaluated(linear(), tmp_path / "grown", precision=0.1, **SETTINGS)
    grown = evaluated(linear(), tmp_path / "grown", precision=0.08, **SETTINGS)

    once = evaluated(linear(), tmp_path / "once", precision=0.08, **SETTINGS)

    assert grown.checks == once.checks
    assert set(evidence(tmp_path / "once")["checked"]) <= set(evidence(tmp_path / "grown")["checked"])


def test_a_looser_precision_keeps_the_checks(tmp_path):
    before = evaluated(linear(), tmp_path, precision=0.08, **SETTINGS)

    assert evaluated(linear(), tmp_path, precision=0.1, **SETTINGS).checks == before.checks


def test_a_run_that_was_interrupted_is_checked_at_its_end_alone(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluated(linear(), tmp_path / "broken", precision=0.08, watch=Stopping(150), **SETTINGS)
    assert evidence(tmp_path / "broken")["checked"] == []
    resumed = evaluated(linear(), tmp_path / "broken", precision=0.08, **SETTINGS)

    assert resumed.checks == evaluated(linear(), tmp_path / "once", precision=0.08, **SETTINGS).checks
