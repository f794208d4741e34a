"""`robustkit compare` and `robustkit gate`: exit statuses and files."""

import os
import re
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused

EVALUATE = ("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.05")


@pytest.fixture
def runs(run_once):
    run_once("one", *EVALUATE, *MODEL)
    run_once("two", *EVALUATE, "-m", "net.py:other")


def test_a_comparison_is_printed_and_written(runs, robustkit, place):
    printed = robustkit("compare", "one", "two", "--out", "pairs.csv")
    pairs = pd.read_csv(place / "pairs.csv")

    assert printed.status == 0
    assert "95 % interval" in printed.out
    assert pairs["norm"].tolist() == ["-", "Linf"]
    assert (pairs["both"] + pairs["first_only"] + pairs["second_only"] + pairs["neither"] == pairs["n"]).all()


@pytest.mark.parametrize(("least", "status", "word"), [("0", 0, "pass"), ("1", 1, "FAIL")])
def test_the_status_of_a_gate_says_whether_it_passed(least, status, word, runs, robustkit, place):
    printed = robustkit("gate", "one", "--fail-under", f"Linf@0.05>={least}", "--junit", "gate.xml")

    assert printed.status == status
    assert printed.out.startswith(word)
    assert ET.parse(place / "gate.xml").getroot().get("failures") == str(status)


def test_a_gate_that_cannot_be_judged_replaces_the_file_of_an_earlier_one(runs, robustkit, place):
    """The file of the gate before was still there, and said that all had passed."""
    robustkit("gate", "one", "--fail-under", "clean>=0", "--junit", "gate.xml")

    printed = robustkit("gate", "one", "--fail-under", "Linf@8/255>=0.4", "--junit", "gate.xml")

    suite = ET.parse(place / "gate.xml").getroot()
    assert printed.status == 2
    assert [suite.get("tests"), suite.get("failures"), suite.get("errors")] == ["1", "0", "1"]
    assert "no result for" in suite.find("testcase/error").get("message")


def test_a_file_that_cannot_be_written_hides_no_failed_condition(runs, robustkit, place):
    """The error about the file was all that was printed."""
    printed = robustkit("gate", "one", "--fail-under", "clean>=1", "--junit", "one/run.sqlite")

    assert printed.status == 2
    assert printed.out.startswith("FAIL")
    assert re.fullmatch(r"Error: .*run\.sqlite.*not replaced.*\n", printed.err)


def test_a_gate_on_a_folder_that_may_not_be_read_replaces_the_file_too(runs, robustkit, place, monkeypatch):
    """click refused the folder by itself, and the file of an earlier gate stayed."""
    robustkit("gate", "one", "--fail-under", "clean>=0", "--junit", "gate.xml")
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "one")  # as for a user without permissions
    monkeypatch.setattr("robustkit.evidence.opening.sqlite3.connect", Mock(side_effect=PermissionError(13, "denied")))

    printed = robustkit("gate", "one", "--fail-under", "clean>=0", "--junit", "gate.xml")

    assert printed.status == 2
    assert "denied" in printed.err
    assert ET.parse(place / "gate.xml").getroot().get("errors") == "1"


def test_a_run_passes_a_gate_against_itself(runs, robustkit):
    assert robustkit("gate", "one", "--baseline", "one").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "one"], ["two models"]),
        (["compare", "one", "nowhere"], ["nowhere", "run folder"]),
        (["compare", "one", "two", "--out", "net.py"], ["net.py", "not replaced"]),
        (["gate", "one"], ["--fail-under"]),
        (["gate", "one", "--fail-under", "Linf@8/255>=0.4"], ["no result for", "Linf 0.05"]),
        (["gate", "one", "--fail-under", "robust"], ["not a condition", "Linf@8/255>=0.40"]),
        (["gate", "one", "--baseline", "two", "--max-drop", "2"], ["from 0 to 1"]),
        (["gate", "one", "--fail-under", "clean>=0", "--junit", ""], ["--junit", "path is empty"]),
        (["gate", "one", "--baseline", ""], ["--baseline", "path is empty"]),
        (["gate", "", "--fail-under", "clean>=0"], ["path is empty"]),
        (["report", "one", "--card", ""], ["--card", "path is empty"]),
        (["report", "one", "--card", "card.html"], ["JSON or Markdown", "card.html", "rename it"]),
        (["verify", "one", "--sha256", "abc"], ["--sha256", "64 hexadecimal digits", "'abc'"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_cannot_be_answered_is_one_line(arguments, words, runs, robustkit):
    refused(robustkit(*arguments), *words)


def test_an_evaluation_ends_with_the_status_of_its_gate(place, robustkit):
    for least, status, word in (("0", 0, "pass"), ("1", 1, "FAIL")):
        printed = robustkit(*EVALUATE, *MODEL, "-n", "8", "--out", "made", "--fail-under", f"Linf@0.05>={least}")
        assert printed.status == status
        assert printed.out.splitlines()[-1].startswith(word)
    refused(robustkit(*EVALUATE, *MODEL, "--out", "never", "--fail-under", "robust"), "not a condition")

    assert not (place / "never").exists()


def test_a_gate_in_markdown_escapes_what_models_are_called(place, robustkit):
    robustkit(*EVALUATE, *MODEL, "-n", "8", "--out", "made", "--name", "a | <b>\n# c")
    printed = robustkit("gate", "made", "--fail-under", "Linf@0.05>=1", "--format", "markdown")

    assert printed.status == 1
    assert printed.out.startswith("| status | model | threat | measured |")
    assert "| FAIL | a \\| \\<b\\>" in printed.out
    assert re.search(r"[\d.]+ % \(95 %: [\d.]+ to [\d.]+ %, n=8\) is below 100 %", printed.out)
    assert "\n# c" not in printed.out


@pytest.mark.parametrize("asked", ["L2@0.5>=0.4", "Linf@0.2>=0.4"])
def test_a_condition_on_a_threat_that_the_run_will_not_have_is_refused_before_the_first_image(asked, place, robustkit):
    """It was found after the last one, and stayed in the card as a threshold that was declared and not assessed."""
    printed = robustkit(*EVALUATE, *MODEL, "--out", "typo", "--fail-under", asked)

    assert printed.status == 2
    assert printed.err.strip().endswith("it is about Linf@0.05. Add that norm and radius.")
    assert not (place / "typo").exists()
    assert robustkit(*EVALUATE, *MODEL, "--plan", "--fail-under", asked).err == printed.err
    assert robustkit(*EVALUATE, *MODEL, "--out", "typo", "--fail-under", "Linf@1/20>=0").status == 0


@pytest.mark.parametrize(
    ("form", "name"), [("latex", "report.tex"), ("json", "report.json"), ("model-card", "model-card.md")]
)
def test_a_report_in_another_form_does_not_replace_the_page(form, name, runs, robustkit, place):
    """report.html held LaTeX, and the folder was said to be changed."""
    page = (place / "one" / "report.html").read_bytes() if (place / "one" / "report.html").exists() else None

    printed = robustkit("report", "one", "--format", form)

    assert printed.status == 0
    assert (place / "one" / name).is_file()
    assert ((place / "one" / "report.html").read_bytes() if page else page) == page
