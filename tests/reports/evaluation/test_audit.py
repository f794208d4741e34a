"""What an audit adds to the terminal, the page and a report of several runs."""

import re
from dataclasses import replace
from html import unescape

import pytest
from robustkit.reports import write_report

from robustkit import Classifier
from robustkit.evidence.run import Run
from tests.evaluation.test_autoattack import shorter
from tests.small import data, evaluated, linear


@pytest.fixture(scope="module")
def run() -> Run:
    with pytest.MonkeyPatch.context() as patch:
        shorter(patch)
        return evaluated(Classifier(linear(), name="m"), None, dataset=data(40), attacks="fgsm", eps="0.1", audit=10)


def with_misses(run: Run, misses: int, n: int, low: float, method: str = "clopper-pearson one-sided") -> Run:
    results = run.results.copy()
    row = results.role == "audit"
    results.loc[row, ["n", "correct", "attacked", "broken"]] = n, n - misses, n, misses
    results.loc[row, ["ci_low", "ci_method"]] = low, method
    return replace(run, results=results)


def page(runs: list[Run], folder) -> str:
    write_report(runs, folder / "report.html")
    text = (folder / "report.html").read_text(encoding="utf-8")
    return unescape(" ".join(re.sub(r"<[^>]*>", " ", text).split()))


@pytest.mark.parametrize(
    ("misses", "n", "low", "method", "words"),
    [
        (0, 100, 0.97049, "clopper-pearson one-sided", "broke 0 of 100 survivors; at most 3.0 % of survivors are"),
        (0, 10000, 0.9997, "clopper-pearson one-sided", "at most 0.1 % of survivors are missed, 95 % one-sided"),
        (2, 10, 0.4931, "clopper-pearson one-sided", "broke 2 of 10 survivors, which the worst case counts as broken;"),
        (0, 7, 1, "exact", "AutoAttack broke 0 of 7 survivors; these are all survivors."),
        (1, 7, 0, "unfinished", "unfinished; AutoAttack broke 1 of 7 survivors so far"),
        (0, 0, 0, "exact", "no image survived"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_was_missed(misses, n, low, method, words, run, tmp_path):
    shown = with_misses(run, misses, n, low, method)

    assert words in " ".join(str(shown).split())
    assert words in page([shown], tmp_path)


def test_the_audit_has_no_accuracy_and_no_column_among_the_attacks(run, tmp_path):
    (line,) = (each for each in str(run).splitlines() if each.split()[:1] == ["audit"])
    text = page([run], tmp_path)

    assert "%" not in line
    assert "model clean worst-case fgsm Linf 0.1" in text
    assert re.search(r"audit \d+ of 10 \d+ ", text)  # among what each attack contributed
    assert "The audit attacked survivors" in text


def test_the_worst_case_is_that_of_the_samples(run):
    broken = run.samples[run.samples.verdict == "broken"]["sample"].nunique()
    correct = run.results.correct[run.results.role == "clean"].iloc[0]

    assert run.results.correct[run.results.role == "worst-case"].iloc[0] == correct - broken


def test_two_audited_runs_of_one_model_are_told_apart(run, tmp_path):
    both = [replace(run, folder=tmp_path / name) for name in ("one", "two")]
    text = page(both, tmp_path)

    assert "audit (one): AutoAttack broke" in text
    assert "audit (two): AutoAttack broke" in text
