"""The networks that are broken on purpose set off the checks that the selftest expects, and no others."""

from dataclasses import replace

import pytest

from robustkit.masked_defenses import build
from robustkit.masked_defenses.selftest import CASES, SelftestResult, failed_checks, selftest
from tests.diagnosis.nets import base


@pytest.mark.parametrize("name", ["quantised", "zeroed"])
def test_a_network_without_gradients_sets_off_the_checks_that_are_expected(name):
    (case,) = (replace(case, images=8) for case in CASES if case.name == name)
    result = SelftestResult(case, failed_checks(case, build(name, base()), 0))

    assert case.check in result.failed
    assert result.unexpected == ()


@pytest.mark.slow
def test_the_whole_selftest_holds():
    assert [result.case.name for result in selftest() if not result.holds] == []
