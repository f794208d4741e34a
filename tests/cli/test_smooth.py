"""`--smooth`: certified accuracy on the command line."""

import shlex

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL, without
from tests.cli.test_bad_input import refused
from tests.cli.test_finetune import TUNE

WORDS = ("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--norm", "L2", "--eps", "0.1", "--eps", "0.2", "-n", "10")
SMOOTH = ("--smooth", "0.2", "--smooth-draws", "200")


def test_both_bounds_stand_in_one_table(robustkit, place):
    printed = robustkit(*WORDS, *SMOOTH, "--out", "run")
    results, samples = (pd.read_csv(place / "run" / name) for name in ("results.csv", "samples.csv"))

    assert printed.status == 0
    assert results.role.tolist() == ["clean", *["attack", "worst-case", "certified"] * 2]
    assert "certified" in printed.out
    assert samples[samples.attack == "certified"].groupby("eps")["sample"].count().tolist() == [10, 10]
    assert (samples.radius[samples.verdict == "certified"] >= samples.eps[samples.verdict == "certified"]).all()
    assert "lower bound" in (place / "run" / "report.html").read_text(encoding="utf-8")


def test_the_same_command_resumes_and_another_smoothing_is_refused(robustkit, place):
    first = robustkit(*WORDS, *SMOOTH, "--out", "run")
    before = (place / "run" / "results.csv").read_bytes()

    assert robustkit(*WORDS, *SMOOTH, "--out", "run") == first
    assert (place / "run" / "results.csv").read_bytes() == before
    for more, words in (
        (("--smooth", "0.3"), "smoothing.sigma was 0.2, now 0.3"),
        (("--smooth-draws", "300"), "smoothing.n was 200, now 300"),
        (("--smooth-alpha", "0.01"), "smoothing.alpha was 0.001, now 0.01"),
    ):
        printed = robustkit(*WORDS, *without(SMOOTH, more[0]), *more, "--out", "run")
        assert printed.status == 2
        assert printed.err.count("\n") == 1
        assert words in printed.err


def test_a_report_of_a_smoothed_model_needs_no_model(robustkit, place):
    robustkit(*WORDS, *SMOOTH, "--out", "run")
    (place / "net.py").unlink()

    assert robustkit("report", "run", "--out", "again.html").status == 0
    assert (place / "again.html").read_bytes() == (place / "run" / "report.html").read_bytes()


REFUSED = {
    "sigma 0": (["--smooth", "0"], ["sigma", "positive"]),
    "sigma nan": (["--smooth", "nan"], ["sigma", "nan"]),
    "sigma abc": (["--smooth", "abc"], ["--smooth", "abc"]),
    "alpha 1": (["--smooth", "0.2", "--smooth-alpha", "1"], ["alpha", "0.5"]),
    "no draws": (["--smooth", "0.2", "--smooth-draws", "0"], ["--smooth-draws", "0"]),
    "too few draws": (["--smooth", "0.2", "--smooth-draws", "5"], ["5 copies", "at least 10"]),
    "draws of nothing": (["--smooth-draws", "100"], ["--smooth SIGMA"]),
    "L0": (["--smooth", "0.2", "--norm", "L0", "--eps", "L0:3", "--eps", "L2:0.1"], ["L0"]),
    "a layer of many copies": (["--smooth", "0.2", "-a", "fia"], ["fia", "layer"]),
}


@pytest.mark.parametrize("dry", [[], ["--plan"], ["--dry-run"]], ids=["run", "plan", "dry"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_smoothing_that_cannot_be_done_is_refused_in_one_line(case, dry, robustkit):
    words, told = REFUSED[case]

    eps = [] if "--eps" in words else ["--eps", "0.1"]
    refused(robustkit("evaluate", "-q", *MODEL, *DATA, "--norm", "L2", "-a", "fgsm", *eps, *words, *dry), *told)


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize("norm", ["L2", pytest.param("Linf", marks=pytest.mark.slow)])
def test_a_tuning_with_noise_prints_the_command_that_evaluates_the_smoothed_model(norm, robustkit, place):
    printed = robustkit(*TUNE, "--norm", norm, "--set", "attack=gaussian:sigma=0.25")
    (line,) = [line for line in printed.out.splitlines() if line.startswith("Evaluate it: robustkit ")]
    words = shlex.split(line.removeprefix("Evaluate it: robustkit "))

    more = ("-q", "-n", "5", "-a", "fgsm", "--smooth-draws", "100", "--out", "again")
    assert robustkit(*words, *more).status == 0
    results = pd.read_csv(place / "again" / "results.csv")
    assert results.role.tolist() == ["clean", "attack", "worst-case", "certified"]
    assert results.model[0] == "net.factory-model-smoothed"  # after the checkpoint model.safetensors


def test_a_plan_prints_the_passes_of_the_noisy_copies(robustkit, place):
    words = (*MODEL, *DATA, "-a", "pgd:steps=3", "--norm", "L2", "--eps", "0.001", "-n", "10", *SMOOTH, "--eot", "5")
    told = robustkit("evaluate", *words, "--plan").out
    robustkit("evaluate", "-q", *words, "--out", "run")
    table = pd.read_csv(place / "run" / "results.csv")
    spent = table[table.role.isin(["clean", "worst-case"])]

    # 300 copies for the certificates of 10 images; 3 queries of 5 copies and a verdict of 200.
    assert f"{10 * 300:,}" in told
    assert f"at most {10 * (300 + 3 * 5 + 200):,} forwards and {10 * 3 * 5:,} backwards" in told
    assert spent.forwards.sum() <= 10 * (300 + 3 * 5 + 200)
    assert spent.forwards[0] == 10 * 300
