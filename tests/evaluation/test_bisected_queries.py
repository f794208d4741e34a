"""Attacks on scores that look for the nearest error by bisection: their queries are counted too."""

from robustkit import evaluate
from tests.small import data, linear


def test_distances_against_queries_of_a_bisected_attack_fall_to_the_nearest_error():
    run = evaluate(linear(), dataset=data(8), attacks="square:queries=20,radii=5", norm="Linf", eps="minimum")
    samples = run.samples[run.samples["verdict"] == "broken"]
    curve = run.query_curve().set_index("queries")["median_distance"]

    assert (samples["queries"] <= samples["forwards"]).all()
    for row in samples.itertuples():
        pairs = [pair.split(":") for pair in row.distances.split()]
        assert float(pairs[-1][1]) >= row.linf * (1 - 1e-8)
    assert curve.is_monotonic_decreasing
