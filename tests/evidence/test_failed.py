"""An image without a verdict is neither robust nor broken: it is named, and every interval covers both."""

import pytest
from robustkit.reports.evaluation.answer import answer
from robustkit.reports.evaluation.board import boards
from robustkit.reports.shared.words import percent

from robustkit import Classifier, compare, load_run
from robustkit.classifier.smoothing import Smoothing
from robustkit.data import pick
from robustkit.evaluation.merging import merge
from robustkit.evidence.consistency import contradictions_in
from robustkit.evidence.kept import check_kept
from robustkit.evidence.planned_rows import plan_contradictions
from robustkit.evidence.rows import FailedRecord
from robustkit.evidence.store import Store
from robustkit.statistics.intervals import proportion
from tests.networks import Noisy
from tests.small import data, evaluated, evidence, linear

MODELS = {
    "plain": Classifier(linear(), name="net"),
    "smoothed": Classifier(linear(), name="net", smoothing=Smoothing(0.2, n=12, n0=4)),
    "randomized": Classifier(Noisy(linear(), spread=0.2), name="net", eot=3),
}
ASKED = {"dataset": data(12), "attacks": ["fgsm", "noise:queries=3"], "eps": "0.1", "keep_adversarial": True,
         "corruptions": "contrast", "severities": 1}  # fmt: skip


def failing(folder, *images, model="plain", **asked):
    """A run of which some images failed, with and without rows of theirs."""
    evaluated([MODELS[model]], folder, **{**ASKED, **asked})
    store = Store(folder)
    store.write(FailedRecord("net", number, int(data(12)[1][number]), 3, "SIGKILL") for number in images)
    store.close()
    return load_run(folder)


@pytest.mark.parametrize("model", MODELS)
def test_the_rows_are_those_of_the_other_images_with_bounds(model, tmp_path):
    whole = failing(tmp_path, model=model)
    run = failing(tmp_path, 3, 7, model=model)
    before = whole.samples[~whole.samples["sample"].isin([3, 7])].reset_index(drop=True)
    after = run.samples[run.samples["verdict"] != "error"].reset_index(drop=True)

    assert after.equals(before)
    assert set(run.samples[run.samples["verdict"] == "error"]["sample"]) == {3, 7}
    for row in run.results.itertuples():
        assert (row.n, row.errors) == (12, 2)
        assert row.accuracy == row.correct / 12
        assert row.ci_low == proportion(row.correct, 12).low
        assert row.ci_high == proportion(row.correct + 2, 12).high
    assert run.manifest["finished"]


def test_it_is_named_where_a_reader_looks(tmp_path):
    run = failing(tmp_path, 3)
    run.write()

    assert "net: image 3 ended every process" in " ".join(str(run).split())
    assert "net: image 3 ended every process" in (tmp_path / "report.html").read_text()
    assert ",error," in (tmp_path / "samples.csv").read_text()
    assert "errors" in (tmp_path / "results.csv").read_text().splitlines()[0]
    for name in ("report.json", "report.md", "report.tex"):
        run.save_report(tmp_path / name)


def test_the_headline_is_no_lower_than_what_the_images_without_a_verdict_may_add(tmp_path):
    run = failing(tmp_path, 3, 7)
    worst = run.results[run.results["role"] == "worst-case"].iloc[0]
    said = answer(boards([run])[0])

    assert percent(worst.correct + 2, 12) in said.sentence.replace("\xa0", " ")
    assert f"2 of the images have no verdict; tables count them as wrong ({percent(worst.correct, 12)})" in said.support


def test_its_evidence_does_not_contradict_itself(tmp_path):
    run = failing(tmp_path, 3)

    assert not list(contradictions_in(run))
    assert not list(plan_contradictions(run))
    assert not check_kept(run, {}).contradictions


def test_nobody_works_on_it(tmp_path):
    image = pick(12)[8]
    failing(tmp_path, image, samples=5)
    longer = failing(tmp_path)

    assert set(longer.samples[longer.samples["verdict"] == "error"]["sample"]) == {image}
    assert image not in {row[1] for row in evidence(tmp_path)["clean"]}
    assert set(longer.results["n"]) == {12}


def test_runs_with_errors_are_merged_and_compared(tmp_path):
    failing(tmp_path / "a", 3, attacks="fgsm")
    failing(tmp_path / "b", attacks="noise:queries=3")
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")

    assert not merged.missing
    assert set(merged.run.samples[merged.run.samples["verdict"] == "error"]["sample"]) == {3}
    assert not list(contradictions_in(merged.run))
    assert compare(tmp_path / "a", tmp_path / "merged").pairs is not None
