"""The union counts the images that stand in every norm and radius of a run."""

import pytest

from robustkit import UserError, compare, evaluate, gate
from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.union import ThreatEvidence, members, union_row
from tests.small import cnn, data, linear

CLEAN = CleanColumns.of("m", [(number, 0, int(number == 6)) for number in range(7)])


@pytest.fixture(scope="module")
def run():
    models, radii = [linear(), cnn()], ["Linf:0.05", "Linf:0.1", "L2:0.5"]
    attacks = ["fgsm", "noise:queries=2"]
    return evaluate(models, names=["a", "b"], dataset=data(60), attacks=attacks, norm=["Linf", "L2"], eps=radii)


def attacked(broken, images=range(6)):
    return AttackColumns.of((number, number in broken, 0, 1, 0, -1, 0.0, 0.0, 0.0, 0, 2, 1) for number in images)


def test_an_image_counts_only_if_no_threat_breaks_it():
    threats = [ThreatEvidence({"pgd": attacked(broken)}, None) for broken in ({1, 2}, {2, 3})]

    row = union_row(CLEAN, threats, [("Linf", "1"), ("L2", "1")], 0)

    assert (row["correct"], row["broken"], row["n"], row["undecided"]) == (3, 3, 7, 0)
    assert (row["forwards"], row["backwards"]) == (24, 12)


def test_images_that_a_threat_has_not_reached_are_undecided():
    threats = [ThreatEvidence({"pgd": records}, None) for records in (attacked({1}), attacked({2}, range(3)))]

    row = union_row(CLEAN, threats, [("Linf", "1"), ("L2", "1")], 0)

    assert (row["correct"], row["undecided"], row["ci_method"]) == (4, 3, "unfinished")


def test_only_the_largest_radius_of_each_norm_is_named():
    threats = [("Linf", "1/10"), ("Linf", "0.2"), ("L2", "minimum"), ("L2", "0.5")]

    assert members(threats) == [("Linf", "0.2"), ("L2", "0.5")]
    assert members(threats[:3]) == []


def test_the_union_agrees_with_the_verdicts_of_each_image(run):
    rows = run.results[run.results["role"] == "union"].set_index("model")["correct"]
    standing = (run.samples["verdict"] == "robust").groupby([run.samples["model"], run.samples["sample"]]).all()

    assert rows.to_dict() == standing.groupby("model").sum().to_dict()


def test_unions_are_compared_where_two_runs_have_the_same_threats(run):
    one = {"dataset": data(60), "attacks": ["fgsm", "noise:queries=2"], "names": "c"}
    same = evaluate(linear(), norm=["L2", "Linf"], eps=["L2:1/2", "Linf:1/10", "Linf:0.05"], **one)
    other = evaluate(linear(), norm=["L2", "Linf"], eps=["L2:0.5", "Linf:0.2"], **one)
    norms = [
        compare(run, each).pairs.query("first == 'a' and second == 'c'")["norm"].tolist() for each in (same, other)
    ]

    assert norms == [["-", "L2", "Linf", "Linf", "union"], ["-", "L2"]]


def test_a_gate_takes_the_union(run):
    k = int(run.results[run.results["role"] == "union"]["correct"].min())

    assert gate(run, fail_under=f"union>={k}/60").passed
    assert not gate(run, fail_under=f"union>={k + 1}/60").passed
    with pytest.raises(UserError, match="several norms"):
        gate(evaluate(linear(), dataset=data(3), attacks="fgsm", eps="0.1"), fail_under="union>=0.1")
