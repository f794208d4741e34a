"""An image without a verdict is neither robust nor broken: it is named, and every interval covers both."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from robustkit.reports.evaluation.answer import answer
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.card import card
from robustkit.reports.evaluation.confusion import confusion_tables
from robustkit.reports.evaluation.shown import shown_image
from robustkit.reports.shared.words import percent

from robustkit import Classifier, compare, gate, load_run
from robustkit.classifier.smoothing import Smoothing
from robustkit.data import pick
from robustkit.errors import UserError
from robustkit.evaluation.merging import merge
from robustkit.evidence.consistency import contradictions_in
from robustkit.evidence.kept import check_kept
from robustkit.evidence.planned_rows import plan_contradictions
from robustkit.evidence.rows import FailedRecord
from robustkit.evidence.selection import of_image
from robustkit.evidence.store import Store
from robustkit.statistics.intervals import mean_of_shares, proportion
from robustkit.statistics.paired import PairedCounts, paired_difference
from tests.networks import Noisy
from tests.small import data, evaluated, evidence, linear

MODELS = {
    "plain": Classifier(linear(), name="net"),
    "smoothed": Classifier(linear(), name="net", smoothing=Smoothing(0.2, n=12, n0=4)),
    "randomized": Classifier(Noisy(linear(), spread=0.2), name="net", eot=3),
}
ASKED = {"dataset": data(12), "attacks": ["fgsm", "noise:queries=3"], "eps": "0.1", "keep_adversarial": True,
         "corruptions": "contrast", "severities": 1, "checks": "none"}  # fmt: skip


@cache
def finished(model):
    """The evidence of a run without failures."""
    with TemporaryDirectory() as name:
        evaluated([MODELS[model]], Path(name), **ASKED)
        return (Path(name) / "run.sqlite").read_bytes()


def failing(folder, *images, model="plain", **asked):
    """A run of which some images failed, with and without rows of theirs."""
    if asked or (folder / "run.sqlite").exists():
        evaluated([MODELS[model]], folder, **{**ASKED, **asked})
    else:
        folder.mkdir(exist_ok=True)
        (folder / "run.sqlite").write_bytes(finished(model))
    fail(folder, *images)
    return load_run(folder)


def fail(folder, *images, **changed):
    store = Store(folder)
    store.write(
        replace(FailedRecord("net", number, int(data(12)[1][number]), 3, "SIGKILL"), **changed) for number in images
    )
    store.close()


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


def test_single_draws_left_out_the_images_without_a_verdict(tmp_path):
    """A randomized model was right in more single draws than on images, because those were fewer."""
    run = failing(tmp_path, 3, 7, model="randomized")
    own = run.samples[(run.samples["attack"] == "fgsm") & (run.samples["verdict"] != "error")]
    row = run.results[run.results["attack"] == "fgsm"].iloc[0]
    right = own["draw_accuracy"].sum()

    assert row["draw_accuracy"] == pytest.approx(right / 12)
    assert row["draw_ci_low"] == pytest.approx(mean_of_shares(right, 12).low)
    assert row["draw_ci_high"] == pytest.approx(mean_of_shares(right + 2, 12).high)


def test_the_mean_over_corruptions_has_the_same_bounds(tmp_path):
    run = failing(tmp_path, 3, 7)
    mean, row = run.corruptions.iloc[0], run.results[run.results["role"] == "corruption"].iloc[0]

    assert (mean["n"], mean["accuracy"]) == (12, row["accuracy"])
    assert mean["ci_low"] < row["accuracy"] < mean["ci_high"]
    assert mean["ci_high"] == mean_of_shares(row["correct"] + 2, 12).high


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


def test_the_drop_on_a_card_may_be_larger_by_the_images_without_a_verdict(tmp_path):
    run = failing(tmp_path, 3, 7)
    clean, worst = (run.results[run.results["role"] == role].iloc[0].correct for role in ("clean", "worst-case"))
    drop = card(run)["models"][0]["under_attack"][0]["drop"]

    assert drop["value"] == (clean - worst) / 12
    assert drop["ci_high"] == paired_difference(PairedCounts(worst, clean - worst + 2, 0, 10 - clean)).high


def test_a_headline_about_several_models_says_how_it_counts_images_without_a_verdict(tmp_path):
    evaluated([MODELS["plain"], Classifier(linear(), name="twin")], tmp_path, **ASKED)
    fail(tmp_path, 3, 7)
    run = load_run(tmp_path)
    worst = run.results[(run.results["role"] == "worst-case") & (run.results["model"] == "net")].iloc[0]
    said = answer(boards([run])[0])

    assert said.sentence.startswith("Counting images without a verdict as wrong: ")
    assert f"Without a verdict are 2 of net (up to {percent(worst.correct + 2, 12)});" in said.support


def test_what_an_image_without_a_verdict_is_taken_for_is_no_class(tmp_path):
    """It stood in the table as an image for which the model abstains."""
    run = failing(tmp_path, 3, 7)
    (table,) = confusion_tables(boards([run])[0]).tables

    assert "no verdict" in table.classes
    assert "no class" not in table.classes
    assert sum(cell.images for row in table.rows for cell in row) == 12
    assert "no class" not in shown_image(run, of_image(run, 3), "table")


def test_its_evidence_does_not_contradict_itself(tmp_path):
    run = failing(tmp_path, 3)

    assert not list(contradictions_in(run))
    assert not list(plan_contradictions(run))
    assert not check_kept(run, {}).contradictions


def test_nobody_works_on_it(tmp_path):
    image = pick(12)[8]
    failing(tmp_path, samples=5)
    fail(tmp_path, image)
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


def test_images_without_a_verdict_are_left_out_of_pairs(tmp_path):
    whole, run = failing(tmp_path / "whole"), failing(tmp_path / "run", 3, 7)
    compared = compare(run, whole)
    row = run.results[run.results["role"] == "worst-case"].iloc[0]
    first = compared.ranking[compared.ranking["norm"] == "Linf"].set_index("model").loc["run/net"]

    assert set(compared.pairs["n"]) == {10}
    assert set(compared.pairs["second_only"]) == {0}
    assert any("run/net: 2 images ended every process" in note for note in compared.notes)
    for name in ("n", "correct", "accuracy", "ci_low", "ci_high"):
        assert first[name] == row[name]


@pytest.mark.parametrize(("judged_by", "end"), [("point", "accuracy"), ("low", "ci_low"), ("high", "ci_high")])
def test_a_gate_judges_by_the_interval_of_the_results(judged_by, end, tmp_path):
    run = failing(tmp_path, 3, 7)
    value = run.results[run.results["role"] == "worst-case"].iloc[0][end]

    assert gate(run, fail_under=f"Linf@0.1>={value - 1e-6:.7f}", judged_by=judged_by, allow_unreliable=True).passed
    assert not gate(run, fail_under=f"Linf@0.1>={value + 1e-6:.7f}", judged_by=judged_by).passed


def test_an_image_without_a_verdict_has_no_distance(tmp_path):
    asked = {"attacks": "deepfool", "norm": "L2", "eps": "minimum", "corruptions": (), "severities": ()}
    whole, run = failing(tmp_path / "whole", **asked), failing(tmp_path / "run", 3, 7, **asked)
    (pair,) = compare(run, whole).distances.to_dict("records")
    at_zero = run.curve([0.0]).set_index("attack").loc["worst-case"]
    results = run.results.set_index("role").loc["clean"]
    area = run.area(1.0).set_index("attack").loc["worst-case"]

    assert (pair["n"], pair["first_farther"], pair["second_farther"]) == (10, 0, 0)
    assert (at_zero["correct"], at_zero["ci_high"]) == (results["correct"], results["ci_high"])
    assert area["ci_low"] < whole.area(1.0).set_index("attack").loc["worst-case", "area"] < area["ci_high"]


@pytest.mark.parametrize(
    "change",
    [{"sample": 99}, {"sample": -1}, {"label": 11}, {"label": -1}, {"tries": 0}, {"reason": "\x1b[31m"}],
    ids=str,
)
def test_a_changed_row_is_refused(change, tmp_path):
    failing(tmp_path)
    fail(tmp_path, 3, **change)

    with pytest.raises(UserError, match="damaged or changed"):
        load_run(tmp_path)
