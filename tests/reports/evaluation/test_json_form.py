"""The JSON of a run: valid by its schema, exact, and the same bytes again."""

import json
import math

import pytest
from jsonschema import Draft202012Validator
from robustkit.reports.evaluation.json_form import json_text, schema
from robustkit.reports.evaluation.result_rows import result_rows

from robustkit import Classifier, Smoothing, evaluate
from robustkit.data.dataset import TensorData
from robustkit.host.text import printable
from tests.evaluation.test_autoattack import shorter
from tests.small import data, evaluated, linear

HOSTILE = ("</script><b>", "=cmd|' /C calc'!A0", "\u202egnp.exe", '"},{"a":"')
RUNS = {
    "several norms": {"attacks": ["default", "fgsm"], "eps": ["Linf:8/255", "L2:0.5"], "norm": ["Linf", "L2"]},
    "the nearest error": {"attacks": "fab:steps=2", "eps": "minimum"},
    "an audit": {"attacks": "fgsm", "eps": "0.02", "audit": 2},
    "a certificate": {"attacks": "fgsm", "eps": "0.1", "norm": "L2", "smooth": Smoothing(0.1, n=20, n0=4)},
    "a mask": {"attacks": "fgsm", "eps": "0.3", "mask": "patch:2,2,3,3"},
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_every_run_is_valid_by_the_schema(settings, monkeypatch):
    shorter(monkeypatch)
    run = evaluated(linear(), None, dataset=data(8), **settings)
    read = json.loads(json_text([run]), parse_constant=pytest.fail)
    Draft202012Validator(schema()).validate(read)

    assert len(read["runs"][0]["results"]) == len(run.results)


@pytest.fixture(scope="module")
def hostile():
    """A run whose model, data and classes have hostile names."""
    x, y = data(8)
    made = TensorData(HOSTILE[1], HOSTILE[2], (*HOSTILE, *"456789"), (), x, y)
    models = [Classifier(linear(), name=name) for name in HOSTILE]
    return evaluated(models, None, dataset=made, attacks="fgsm", norm="Linf", eps="0.1")


def test_the_schema_is_a_schema_and_refuses_a_share_of_two(hostile):
    Draft202012Validator.check_schema(schema())
    read = json.loads(json_text([hostile]))
    read["runs"][0]["results"][0]["accuracy"] = 2

    assert not Draft202012Validator(schema()).is_valid(read)


def test_numbers_are_exact(hostile):
    rows = json.loads(json_text([hostile]))["runs"][0]["results"]

    for row, given in zip(rows, hostile.results.to_dict("records"), strict=True):
        for key, value in given.items():
            assert row[key] == (None if isinstance(value, float) and math.isnan(value) else value)


def test_hostile_names_stay_what_they_are(hostile):
    text = json_text([hostile])
    read = json.loads(text)["runs"][0]

    assert text.isascii()
    assert list(dict.fromkeys(row["model"] for row in read["results"])) == list(map(printable, HOSTILE))
    assert read["dataset"]["class_names"][: len(HOSTILE)] == list(HOSTILE)


def test_a_radius_that_is_none_is_said_to_be_infinity():
    run = evaluate(linear(), dataset=data(6), attacks="fab:steps=2", eps="minimum")
    read = json.loads(json_text([run]))["runs"][0]

    assert [each["eps"] for each in read["threats"]] == ["infinity"]
    assert read["results"][-1]["median_distance"] == result_rows(run.results)[-1].distance
