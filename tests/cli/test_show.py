"""`robustkit show`: a run's table again, a part of it, or one image; nothing is written."""

import io
import json
import shutil

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Where the first test puts the run, and what was printed when it was made; the others take a copy."""
    return tmp_path_factory.mktemp("once") / "made", []


@pytest.fixture
def made(once, place, robustkit):
    folder, printed = once
    if not printed:
        printed.append(_evaluated(robustkit))
        shutil.copytree("made", folder)
    else:
        shutil.copytree(folder, "made")
    return printed[0]


def _evaluated(robustkit):
    settings = (
        "-a",
        "fgsm",
        "-a",
        "pgd:steps=2",
        "--eps",
        "Linf:0.05",
        "--eps",
        "L2:1/2",
        "--norm",
        "Linf",
        "--norm",
        "L2",
    )
    printed = robustkit("evaluate", "-q", *MODEL, *DATA, *settings, "--out", "made")
    assert printed.status == 0
    return printed


def test_the_table_is_that_of_the_evaluation_and_no_file_changes(made, robustkit, place):
    before = {file.name: file.read_bytes() for file in (place / "made").iterdir()}
    printed = robustkit("show", "made")

    assert printed.out.strip() == made.out.partition("\nmade/")[0].strip()
    assert {file.name: file.read_bytes() for file in (place / "made").iterdir()} == before


def test_without_the_worst_case_its_explanation_is_left_out_too(made, robustkit):
    printed = robustkit("show", "made", "-a", "fgsm")

    assert "fgsm" in printed.out
    assert not any(words in printed.out for words in ("worst-case", "Resolution"))


def test_a_part_is_told_by_names_and_values(made, robustkit):
    printed = robustkit("show", "made", "--attack", "fgsm", "--norm", "l2", "--eps", "0.5", "--format", "csv")
    rows = pd.read_csv(io.StringIO(printed.out))

    assert rows["attack"].tolist() == ["clean", "fgsm"]
    assert rows["norm"].tolist() == ["-", "L2"]


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown", "latex"])
def test_one_image_is_shown_under_each_attack(form, made, robustkit, place):
    samples = pd.read_csv(place / "made" / "samples.csv")
    image = int(samples["sample"].iloc[0])
    printed = robustkit("show", "made", "--image", image, "--format", form)

    assert printed.status == 0
    if form == "json":
        rows = json.loads(printed.out)["rows"]
        assert [row["verdict"] for row in rows] == samples.query("sample == @image")["verdict"].tolist()
    assert printed.out.count("fgsm") >= 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--image", "999"], ["no image 999", "30 of digits"]),
        (["--attack", "square"], ["square", "fgsm"]),
        (["--eps", "0.2"], ["0.2", "0.05"]),
        (["--format", "yaml"], ["yaml", "markdown"]),
        (["--model", "other"], ["other"]),
    ],
    ids=" ".join,
)
def test_what_the_run_does_not_have_is_one_line(arguments, words, made, robustkit):
    refused(robustkit("show", "made", *arguments), *words)
