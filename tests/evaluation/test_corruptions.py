"""Corrupted images in an evaluation: one verdict each, beside the attacks, with evidence that can be continued."""

import sqlite3

import numpy as np
import pytest
import torch
from robustkit.reports import write_corruptions
from robustkit.reports.evaluation.html import page as page_of

import robustkit
from robustkit.common_corruptions.generate import corrupted as corrupted_pictures
from robustkit.common_corruptions.generate import eight_bits
from robustkit.common_corruptions.suite import images_of
from robustkit.data import pick
from robustkit.errors import UserError
from tests.networks import Constant
from tests.small import Recorder, csv, data, evaluated, evidence, linear

COUNT = 12
ASKED = {"corruptions": ["contrast", "impulse_noise"], "severities": [1, 5]}


def corrupted(folder=None, models=None, **request):
    return evaluated(
        linear() if models is None else models, folder,
        **{"dataset": data(COUNT), "attacks": (), **ASKED, **request},
    )  # fmt: skip


def test_accuracies_are_those_of_the_model_on_the_corrupted_images():
    x, y = data(COUNT)
    run = corrupted(seed=3)
    rows = run.results[run.results.role == "corruption"]

    assert len(rows) == 4
    for row in rows.itertuples():
        made = images_of(corrupted_pictures(eight_bits(x), row.attack, int(row.eps), 3, range(COUNT)))
        assert row.correct == int((linear()(made).argmax(1) == y).sum())
    means = run.corruptions.set_index("corruption").accuracy
    assert means["all"] == pytest.approx(rows.accuracy.mean())
    assert means["contrast"] == pytest.approx(rows[rows.attack == "contrast"].accuracy.mean())


def test_an_average_is_never_part_of_a_worst_case():
    attacked = {"dataset": data(COUNT), "attacks": "fgsm", "eps": "0.1"}
    with_corruptions, without = evaluated(linear(), None, **attacked, **ASKED), evaluated(linear(), None, **attacked)
    others = with_corruptions.results[with_corruptions.results.role != "corruption"].reset_index(drop=True)

    assert others.equals(without.results)
    assert with_corruptions.samples.equals(without.samples)
    assert without.corruptions.empty


def test_an_interrupted_run_is_continued_to_the_same_evidence(tmp_path):
    for stop in (0, COUNT + 5, 3 * COUNT):
        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            corrupted(folder, watch=Recorder(stop))
        corrupted(folder)
        whole = corrupted(tmp_path / "whole")

        assert evidence(folder)["corrupted"] == evidence(tmp_path / "whole")["corrupted"]
        assert csv(robustkit.load_run(folder), tmp_path) == csv(whole, tmp_path)


def test_a_run_grows_by_corruptions_severities_images_and_attacks(tmp_path):
    corrupted(tmp_path / "grown", samples=5, corruptions="contrast", severities=5)
    corrupted(tmp_path / "grown")
    grown = corrupted(tmp_path / "grown", attacks="fgsm", eps="0.1")
    at_once = corrupted(tmp_path / "at once", attacks="fgsm", eps="0.1")

    assert grown.results.equals(at_once.results)
    assert grown.corruptions.equals(at_once.corruptions)


def test_a_finished_run_is_not_judged_again(tmp_path):
    corrupted(tmp_path)
    watch = Recorder()
    corrupted(tmp_path, watch=watch)

    assert watch.images == 0


def test_other_settings_are_refused(tmp_path):
    corrupted(tmp_path)

    for change, word in (
        ({"corruptions": (), "severities": (), "attacks": "fgsm"}, "corruptions .generated. are missing"),
        ({"severities": [1]}, "severity 5 is missing"),
        ({"corruptions": ["fog"]}, "corruption contrast is missing"),
        ({"seed": 1}, "seed"),
    ):
        with pytest.raises(UserError, match=word):
            corrupted(tmp_path, **change)


def test_a_request_that_cannot_be_met_is_one_clear_line():
    for change, word in (
        ({"corruptions": ()}, "Severities are for corruptions"),
        ({"eps": "0.1"}, "eps is for attacks"),
        ({"corruption_baseline": "nobody"}, "no baseline"),
        ({"severities": [0]}, "severity is"),
    ):
        with pytest.raises(UserError, match=word):
            corrupted(**change)
    with pytest.raises(UserError, match="baseline is for corruption errors"):
        evaluated(linear(), None, dataset=data(4), attacks="fgsm", corruption_baseline="alexnet")


def test_errors_are_divided_by_those_of_a_model_of_the_run_which_can_be_chosen_later(tmp_path):
    models = {"models": [linear(), Constant(3)], "names": ["fitted", "constant"]}
    corrupted(tmp_path, **models)
    run = corrupted(tmp_path, **models, corruption_baseline="constant")
    overall = run.corruptions[run.corruptions.corruption == "all"].set_index("model")

    errors = run.corruptions[run.corruptions.corruption != "all"].set_index(["corruption", "model"]).error.unstack()
    assert overall.ce["constant"] == 1
    assert overall.ce["fitted"] == pytest.approx((errors["fitted"] / errors["constant"]).mean())


def test_published_arrays_are_judged_as_they_are(tmp_path):
    x, y = (part.numpy() for part in data(COUNT))
    made = np.concatenate([(x * (1 - severity / 10) * 255).astype(np.uint8) for severity in range(1, 6)])
    np.save(tmp_path / "fog.npy", made.transpose(0, 2, 3, 1))
    np.save(tmp_path / "labels.npy", np.tile(y, 5))
    run = corrupted(corruptions=tmp_path, severities=(), samples=7)

    chosen = pick(COUNT)[:7]
    for row in run.results[run.results.role == "corruption"].itertuples():
        part = torch.from_numpy(made[[(int(row.eps) - 1) * COUNT + number for number in chosen]]).float() / 255
        assert row.correct == int((linear()(part).argmax(1).numpy() == y[chosen]).sum())


def test_a_randomized_and_a_smoothed_model_are_judged_alike_in_any_order(tmp_path):
    smoothed = robustkit.Classifier(linear(), smoothing=robustkit.Smoothing(0.1, n=20, n0=5))
    whole = corrupted(tmp_path / "a", smoothed)
    corrupted(tmp_path / "b", smoothed, samples=4, severities=5)
    parts = corrupted(tmp_path / "b", smoothed)

    assert whole.results.equals(parts.results)


def test_names_on_the_page_are_escaped_and_it_is_rendered_alike_again(tmp_path):
    run = corrupted(tmp_path, names="<script>=1+1", corruption_baseline="<script>=1+1")
    again = robustkit.load_run(tmp_path)
    page = page_of([run])
    write_corruptions(run, tmp_path)

    assert "<script>=" not in page
    assert "impulse_noise" in page
    assert page == page_of([again])
    assert "\n=" not in (tmp_path / "corruptions.csv").read_text()
    assert "all" in str(run)


def test_python_has_a_function_for_corruptions_alone(tmp_path):
    run = robustkit.corruptions(linear(), dataset=data(3), corruptions="brightness", out=tmp_path / "run")

    assert set(run.results.role) == {"clean", "corruption"}
    assert (tmp_path / "run" / "corruptions.csv").is_file()


def test_two_models_that_saw_other_pictures_are_said_to_have(tmp_path):
    corrupted(tmp_path, [linear(), Constant(3)], names=["fitted", "constant"])
    with sqlite3.connect(tmp_path / "run.sqlite") as opened:
        opened.execute("UPDATE corrupted SET pixels = 1 WHERE model = 'constant' AND severity = 5")
    opened.close()

    assert any("other versions" in warning for warning in robustkit.load_run(tmp_path).manifest["warnings"])


def test_rows_of_another_type_are_refused(tmp_path):
    corrupted(tmp_path)
    with sqlite3.connect(tmp_path / "run.sqlite") as opened:
        opened.execute("UPDATE corrupted SET pred = 'x' WHERE severity = 5")
    opened.close()

    with pytest.raises(UserError, match="corrupted image"):
        robustkit.load_run(tmp_path)
