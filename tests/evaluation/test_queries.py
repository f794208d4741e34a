"""Success and distance against queries, of attacks without gradients."""

import numpy as np
import pytest

from robustkit import evaluate
from robustkit.errors import UserError
from tests.small import Recorder, cnn, data, evaluated, linear

SQUARE, RAYS = "square:queries=30,restarts=2", "rays:queries=40,restarts=2"


@pytest.fixture(scope="module")
def run():
    return evaluate(cnn(), dataset=data(40), attacks=[SQUARE, "pgd:steps=2"], eps=["0.05", "0.1"], samples=None)


@pytest.fixture(scope="module")
def nearest():
    return evaluate(cnn(), dataset=data(12), attacks=RAYS, eps="Linf:minimum", samples=None)


def test_success_after_all_queries_is_the_success_rate_of_the_attack(run):
    curve = run.query_curve([58]).set_index("eps_text")
    results = run.results[run.results.attack == SQUARE].set_index("eps_text")

    assert 0 < curve.broken["0.05"] < curve.broken["0.1"] < 40
    assert (curve.broken.astype(int) == curve.n - results.correct).all()


def test_the_queries_of_an_image_count_over_all_of_its_restarts(run):
    rows = run.samples[(run.samples.attack == SQUARE) & (run.samples.eps == 0.05)]
    robust, broken = rows[rows.verdict == "robust"], rows[rows.verdict == "broken"]

    # A trial of 30 forwards has 29 queries and a verdict.
    assert (robust.queries == 58).all()
    assert (broken.queries == 29 * broken.restart + broken.queries_to_break).all()


def test_an_image_that_a_smaller_radius_broke_keeps_its_queries(run):
    small, large = (run.samples[(run.samples.attack == SQUARE) & (run.samples.eps == eps)].set_index("sample")
                    for eps in (0.05, 0.1))  # fmt: skip
    broken = small.verdict == "broken"

    assert (large.queries[broken] == small.queries[broken]).all()
    assert (large.verdict[broken] == "broken").all()


def test_queries_of_attacks_with_gradients_are_not_counted(run):
    assert set(run.query_curve().attack) == {SQUARE}


def test_the_distance_after_all_queries_is_the_distance_of_the_run(nearest):
    end = nearest.query_curve([78]).iloc[0]
    result = nearest.results[nearest.results.attack == RAYS].iloc[0]

    assert (end.median_distance, end.distance_low, end.distance_high) == (
        result.median_distance, result.distance_low, result.distance_high,
    )  # fmt: skip


def test_the_distance_after_fewer_queries_is_that_of_a_smaller_budget(nearest):
    # RayS does not depend on its budget: 11 forwards are 10 queries and a verdict.
    short = evaluate(cnn(), dataset=data(12), attacks="rays:queries=11", eps="Linf:minimum", samples=None)

    assert nearest.query_curve([10]).median_distance[0] == pytest.approx(short.results.median_distance[1], rel=1e-6)


def test_distances_never_grow_with_queries(nearest):
    curve = nearest.query_curve()

    assert list(curve.queries) == [1, 2, 5, 10, 20, 50, 100]
    assert (np.diff(curve.median_distance) <= 0).all()
    assert curve.median_distance.iloc[0] > curve.median_distance.iloc[-1]


def test_a_run_that_was_killed_and_resumed_has_the_same_queries(tmp_path, nearest):
    call = {"dataset": data(12), "attacks": RAYS, "eps": "Linf:minimum", "samples": None}
    with pytest.raises(KeyboardInterrupt):
        evaluated(cnn(), tmp_path, **call, watch=Recorder(stop_after=15), batch_size=5)
    resumed = evaluated(cnn(), tmp_path, **call, batch_size=7)

    assert resumed.samples[["queries", "distances"]].equals(nearest.samples[["queries", "distances"]])


def test_a_run_without_such_attacks_has_no_curve_and_no_columns():
    plain = evaluate(linear(), dataset=data(10), attacks="fgsm", eps="0.05", samples=None)

    assert "queries" not in plain.samples
    with pytest.raises(UserError, match="no attack without gradients"):
        plain.query_curve()
