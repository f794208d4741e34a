"""What a run is recognised by when it is continued."""

from dataclasses import fields

import pytest

from robustkit import Classifier, Smoothing
from robustkit.evaluation.identity import _model
from tests.small import linear

OTHER = {
    "bounds": (0.0, 2.0), "name": "other", "fold": False, "channels_last": True, "compile": True, "cuda_graphs": True,
    "bf16": True, "tf32": True, "bpda": {"0": None}, "eot": 3, "draws": 64, "probabilities": True,
    "straight_through": True, "smoothing": Smoothing(0.25), "rejects": True,
}  # fmt: skip


def test_no_option_of_a_classifier_is_forgotten():
    assert {field.name for field in fields(Classifier)} == {"model", *OTHER}


@pytest.mark.parametrize("option", OTHER)
def test_another_option_is_another_run(option):
    network = linear()

    assert _model(Classifier(network, **{option: OTHER[option]})) != _model(Classifier(network))
