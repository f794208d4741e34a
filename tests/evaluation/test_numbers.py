"""The tables of a run: counts, intervals and rates, also for one image, one class, and no or all images broken."""

import pytest
import torch
from scipy.stats import binomtest

from robustkit import evaluate
from robustkit.evidence.run import Run
from tests.networks import Constant
from tests.small import accuracy, cnn, csv, data, linear


def constant_run(labels: list[int], attacks=("fgsm", "tiny", "noise:queries=3")) -> Run:
    return evaluate(Constant(3), dataset=(data(len(labels))[0], torch.tensor(labels)), attacks=list(attacks), eps="0.1")


def interval(row) -> tuple[float, float, str]:
    exact = row.correct in (0, row.n)
    limits = binomtest(row.correct, row.n).proportion_ci(method="exact" if exact else "wilson")
    return limits.low, limits.high, "clopper-pearson" if exact else "wilson"


@pytest.mark.parametrize("labels", [[3] * 7, [1] * 7, [3, 3, 1, 1, 3, 2, 0]], ids=["all", "none", "some"])
def test_every_row_has_its_interval_and_the_right_kind(labels):
    for row in constant_run(labels).results.itertuples():
        assert (row.ci_low, row.ci_high, row.ci_method) == pytest.approx(interval(row))
        assert row.ci_low <= row.accuracy <= row.ci_high


def test_every_accuracy_is_a_count_of_images():
    run = evaluate([linear(), cnn()], dataset=data(30), attacks=["fgsm", "tiny"], eps=["0.05", "0.1"])

    assert (run.results.n == 30).all()
    assert (run.results.accuracy == run.results.correct / run.results.n).all()


def test_success_rate_is_a_share_of_the_attacked_images():
    run = evaluate(linear(), dataset=data(30), attacks=["fgsm", "tiny"], eps="0.1")
    attacked = run.results[run.results.role != "clean"]

    assert (attacked.success_rate == attacked.broken / attacked.attacked).all()


def test_passes_in_results_are_the_sums_of_those_in_samples():
    run = evaluate(linear(), dataset=data(30), attacks=["fgsm", "tiny", "pgd:steps=3"], eps=["0.05", "0.1"])
    sums = run.samples.groupby(["eps_text", "attack"])[["forwards", "backwards"]].sum()
    rows = run.results[run.results.role.isin(["attack", "member", "ensemble"])].set_index(["eps_text", "attack"])

    assert rows.forwards.to_dict() == sums.forwards.to_dict()
    assert rows.backwards.to_dict() == sums.backwards.to_dict()


def test_a_model_that_is_always_wrong_is_not_attacked():
    run = constant_run([1] * 7)
    attacked = run.results[run.results.role != "clean"]

    assert (run.results.accuracy == 0).all()
    assert (attacked.attacked == 0).all()
    assert (attacked.forwards == 0).all()
    assert attacked.success_rate.isna().all()
    assert set(run.samples.verdict) == {"clean-wrong"}
    assert run.samples.groupby("attack")["sample"].nunique().to_dict() == {"fgsm": 7, "tiny": 7, "noise:queries=3": 7}


@pytest.mark.parametrize("label", [3, 1])
def test_a_single_image_is_enough(label, tmp_path):
    run = constant_run([label])

    assert (run.results.n == 1).all()
    assert accuracy(run, "worst-case") == (label == 3)
    assert csv(run, tmp_path)


def test_a_single_class_is_enough():
    x, y = data(200)
    run = evaluate(cnn(), dataset=(x[y == 4], y[y == 4]), attacks=["fgsm", "tiny"], eps="0.1")

    assert set(run.samples.label) == {4}
    assert 0 < accuracy(run, "worst-case") < accuracy(run, "clean")


def test_more_samples_than_images_means_all_of_them():
    assert (evaluate(linear(), dataset=data(5), attacks="fgsm", eps="0.1", samples=1000).results.n == 5).all()


@pytest.mark.parametrize("label", [3, 1])
def test_every_report_can_be_made_of_a_single_image(label, tmp_path):
    from rich.console import Console
    from robustkit.reports import print_table, write_report

    run = constant_run([label])
    write_report([run], tmp_path / "report.html")
    with open(tmp_path / "table.txt", "w") as file:
        print_table(run, Console(file=file))

    assert "nan" not in (tmp_path / "table.txt").read_text().lower()


def test_whole_numbers_stay_whole_in_the_csv(tmp_path):
    text = csv(evaluate(linear(), dataset=data(30), attacks="fgsm", eps="0.1"), tmp_path)[1].decode()
    header, *lines = [line.split(",") for line in text.splitlines()]

    for name in ("sample", "label", "clean_pred", "adv_pred", "queries_to_break", "forwards", "l0"):
        assert all("." not in line[header.index(name)] for line in lines)
