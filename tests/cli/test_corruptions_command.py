"""`robustkit corruptions`, and corruptions beside attacks."""

import pandas as pd

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused

FEW = ("--corruptions", "contrast", "--corruptions", "pixelate", "--severity", "2")


def test_a_run_is_made_continued_with_attacks_and_verified(robustkit, place):
    first = robustkit(
        "corruptions", "-q", *MODEL, *DATA, *FEW, "--name", "net", "--corruption-baseline", "net", "--out", "run"
    )
    table = pd.read_csv(place / "run" / "corruptions.csv")
    attacked = ("evaluate", "-q", *MODEL, *DATA, *FEW, "--name", "net", "-a", "fgsm", "--eps", "0.1", "--out", "run")

    assert first.status == 0
    assert "corruptions.csv" in first.out
    assert table.corruption.tolist() == ["contrast", "pixelate", "all"]
    assert table.ce.notna().all()
    assert robustkit(*attacked).status == 0
    assert pd.read_csv(place / "run" / "corruptions.csv").equals(table)
    assert set(pd.read_csv(place / "run" / "results.csv").role) == {"clean", "corruption", "attack", "worst-case"}
    (place / "run" / "corruptions.csv").unlink()
    assert robustkit("report", "run").status == 0
    assert robustkit("verify", "run").out.count("pass") == 5


def test_the_plan_counts_one_verdict_for_each_cell(robustkit):
    printed = robustkit(
        "evaluate", "-q", *MODEL, *DATA, *FEW, "-a", "fgsm", "--eps", "0.1", "--checks", "none", "--plan"
    )

    assert "60" in next(line for line in printed.out.splitlines() if "corruptions x severities" in line)
    # Of 30 images: 30 clean, 60 of the attack, 60 corrupted.
    assert "In all at most 150 forwards" in printed.out


def test_mistakes_are_one_line(robustkit, place):
    command = ("corruptions", "-q", *MODEL, *DATA)

    refused(robustkit(*command, "--corruptions", "fogg"), "fogg", "fog")
    refused(robustkit(*command, "--corruptions", "nowhere/c"), "nowhere", "not a folder of corrupted images")
    refused(robustkit(*command, "--corruptions", "published"), "published")
    refused(robustkit(*command, "--corruption-baseline", "nobody"), "nobody", "alexnet")
    refused(robustkit("corruptions"), "--model")
