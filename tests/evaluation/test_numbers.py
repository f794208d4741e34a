"""Tables: counts, intervals, and what happens at the edges of all of them."""

import pytest
import torch
from scipy.stats import binomtest

from robustkit import evaluate
from robustkit.evidence.run import Run
from tests.small import Sure, accuracy, cnn, csv, data, linear


def sure(labels: list[int], attacks=("fgsm", "tiny", "noise:queries=3")) -> Run:
    return evaluate(Sure(3), dataset=(data(len(labels))[0], torch.tensor(labels)), attacks=list(attacks), eps="0.1")


def interval(row) -> tuple[float, float, str]:
    exact = row.correct in (0, row.n)
    found = binomtest(row.correct, row.n).proportion_ci(method="exact" if exact else "wilson")
    return found.low, found.high, "clopper-pearson" if exact else "wilson"


@pytest.mark.parametrize("labels", [[3] * 7, [1] * 7, [3, 3, 1, 1, 3, 2, 0]], ids=["all", "none", "some"])
def test_every_row_has_its_interval_and_the_right_kind(labels):
    for row in sure(labels).results.itertuples():
        assert (row.ci_low, row.ci_high, row.ci_method) == pytest.approx(interval(row))
        assert row.ci_low <= row.accuracy <= row.ci_high


def test_every_accuracy_is_a_count_of_images():
    made = evaluate([linear(), cnn()], dataset=data(30), attacks=["fgsm", "tiny"], eps=["0.05", "0.1"])

    assert (made.results.n == 30).all()
    assert (made.results.accuracy == made.results.correct / made.results.n).all()


def test_success_rate_is_a_share_of_the_attacked_images():
    made = evaluate(linear(), dataset=data(30), attacks=["fgsm", "tiny"], eps="0.1")
    attacked = made.results[made.results.role != "clean"]

    assert (attacked.success_rate == attacked.broken / attacked.attacked).all()


def test_passes_in_results_are_the_sums_of_those_in_samples():
    made = evaluate(linear(), dataset=data(30), attacks=["fgsm", "tiny", "pgd:steps=3"], eps=["0.05", "0.1"])
    sums = made.samples.groupby(["eps_text", "attack"])[["forwards", "backwards"]].sum()
    rows = made.results[made.results.role.isin(["attack", "member", "ensemble"])].set_index(["eps_text", "attack"])

    assert rows.forwards.to_dict() == sums.forwards.to_dict()
    assert rows.backwards.to_dict() == sums.backwards.to_dict()


def test_an_unbeatable_model_has_a_success_rate_of_zero():
    made = sure([3] * 7)
    attacked = made.results[made.results.role != "clean"]

    assert (attacked.success_rate == 0).all()
    assert (attacked.accuracy == 1).all()
    assert (attacked.ci_high == 1).all()


def test_a_model_that_is_always_wrong_is_attacked_by_nobody():
    made = sure([1] * 7)
    attacked = made.results[made.results.role != "clean"]

    assert (made.results.accuracy == 0).all()
    assert (attacked.attacked == 0).all()
    assert (attacked.forwards == 0).all()
    assert attacked.success_rate.isna().all()


def test_every_image_that_is_wrong_without_attack_has_a_row_that_says_so():
    made = sure([1] * 7)

    assert set(made.samples.verdict) == {"clean-wrong"}
    assert made.samples.groupby("attack")["sample"].nunique().to_dict() == {"fgsm": 7, "tiny": 7, "noise:queries=3": 7}


@pytest.mark.parametrize("label", [3, 1])
def test_a_single_image_is_enough(label, tmp_path):
    made = sure([label])

    assert (made.results.n == 1).all()
    assert accuracy(made, "worst-case") == (label == 3)
    assert csv(made, tmp_path)


def test_a_single_class_is_enough():
    x, y = data(200)
    made = evaluate(cnn(), dataset=(x[y == 4], y[y == 4]), attacks=["fgsm", "tiny"], eps="0.1")

    assert set(made.samples.label) == {4}
    assert 0 < accuracy(made, "worst-case") < accuracy(made, "clean")


def test_a_number_of_images_that_no_batch_divides_is_counted_whole():
    # foolbox#735: averages of batches are not the average.
    made = evaluate(linear(), dataset=data(65), attacks="fgsm", eps="0.1", batch_size=64)
    robust = (made.samples.verdict == "robust").sum()

    assert accuracy(made, "fgsm") == robust / 65


def test_more_samples_than_images_means_all_of_them():
    assert (evaluate(linear(), dataset=data(5), attacks="fgsm", eps="0.1", samples=1000).results.n == 5).all()


@pytest.mark.parametrize("label", [3, 1])
def test_every_report_can_be_made_at_the_edges(label, tmp_path):
    from rich.console import Console
    from robustkit.reports import print_table, write_report

    made = sure([label])
    write_report([made], tmp_path / "report.html")
    with open(tmp_path / "table.txt", "w") as file:
        print_table(made, Console(file=file))

    assert "nan" not in (tmp_path / "table.txt").read_text().lower()


def test_whole_numbers_stay_whole_in_the_csv(tmp_path):
    text = csv(evaluate(linear(), dataset=data(30), attacks="fgsm", eps="0.1"), tmp_path)[1].decode()
    header, *lines = [line.split(",") for line in text.splitlines()]

    for name in ("sample", "label", "clean_pred", "adv_pred", "question", "forwards", "l0"):
        assert all("." not in line[header.index(name)] for line in lines)
