"""Names of models: as reports show them, so that no two of a run look the same."""

import pytest
from robustkit.reports.evaluation.card import card

from robustkit import Classifier, UserError
from tests.small import data, evaluated, linear

SETTINGS = {"dataset": data(8), "attacks": "fgsm", "norm": "Linf", "eps": "0.1"}


@pytest.mark.parametrize(("first", "second"), [("net\u00a0A", "net\u2009A"), ("a\u200bb", "a\u200cb"), ("a b", "a\tb")])
def test_two_names_that_look_the_same_are_refused(first, second):
    # Reports made one model of both: its worst case was on images that one or the other got wrong.
    with pytest.raises(UserError, match="Two models get the name"):
        evaluated([linear(), linear()], None, names=[first, second], **SETTINGS)


def test_models_whose_own_names_look_the_same_are_numbered():
    run = evaluated([Classifier(linear(), name="a\u200bb"), Classifier(linear(), name="a\u200cb")], None, **SETTINGS)

    assert run.results["model"].unique().tolist() == ["a\ufffdb", "a\ufffdb-2"]


def test_a_card_has_the_results_of_a_name_with_a_blank_that_is_none_of_ascii():
    run = evaluated(linear(), None, names=["ResNet\u00a050"], **SETTINGS)

    assert card(run)["models"][0]["clean"] != "not assessed"
    assert [each["name"] for each in card(run)["models"]] == ["ResNet 50"]
