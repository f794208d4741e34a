"""Runs to the nearest error are compared image by image."""

import numpy as np
import pandas as pd
import pytest

from robustkit import UserError, compare, evaluate, gate
from robustkit.evidence.distances import area
from tests.small import cnn, data, linear


@pytest.fixture(scope="module")
def run():
    return evaluate(
        [linear(), cnn()], names=["a", "b"], dataset=data(40), attacks="fab:steps=3", eps="minimum", norm="L2"
    )


def test_images_are_counted_by_the_nearer_error(run):
    row = compare(run).distances.iloc[0]
    distance = run.samples["l2"].where(run.samples["verdict"] == "broken", np.inf)
    distance = distance.where(run.samples["verdict"] != "clean-wrong", 0.0)
    table = run.samples.assign(distance=distance).pivot(index="sample", columns="model", values="distance")

    assert (row["first_farther"], row["second_farther"]) == (
        (table["a"] > table["b"]).sum(),
        (table["a"] < table["b"]).sum(),
    )
    assert row["n"] == 40
    assert "distance of the nearest adversarial example" in str(compare(run))


def test_the_area_is_the_mean_accuracy_over_all_radii(run):
    radii = np.linspace(0, 0.8, 2001)
    curves = run.curve(radii).query("attack == 'worst-case'").groupby("model")["accuracy"].mean()
    areas = run.area(0.8).query("attack == 'worst-case'").set_index("model")

    assert areas["area"].to_dict() == pytest.approx(curves.to_dict(), abs=1e-3)
    assert (areas["ci_low"] < areas["area"]).all()
    assert run.area(0.8).equals(run.area(0.8))


def test_a_gate_wants_radii(run):
    with pytest.raises(UserError, match="distances"):
        gate(run, fail_under="clean>=0.1")


def test_a_limit_that_is_a_text_ended_with_a_type_error():
    with pytest.raises(UserError, match=r"area\(\): limit must be float or None, not str"):
        area(pd.DataFrame(), "a")
