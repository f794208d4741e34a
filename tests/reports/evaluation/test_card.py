"""The card for auditors: valid by its schema, from the evidence alone, and honest about what it does not know."""

import json
import re
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator
from robustkit.reports.evaluation.card import card, card_json, card_schema
from robustkit.reports.evaluation.card_markdown import card_markdown, write_card
from statsmodels.stats.proportion import proportion_confint

from robustkit import Classifier, Smoothing, UserError, load_run
from robustkit.checks import Check
from tests.small import Recorder, cnn, data, evaluated, linear

RUNS = {
    "white-box": {"attacks": ["default", "fgsm"], "eps": ["0.05", "0.1"]},
    "transfer": {"attacks": "fgsm", "eps": "0.1", "surrogates": [Classifier(cnn(), name="other")]},
    "the nearest error": {"attacks": "fab:steps=2", "eps": "minimum"},
    "a certificate": {"attacks": "fgsm", "eps": "0.1", "norm": "L2", "smooth": Smoothing(0.1, n=20, n0=4)},
    "a mask": {"attacks": "fgsm", "eps": "0.3", "mask": "patch:2,2,3,3"},
    "corruptions": {"attacks": (), "corruptions": ["fog", "contrast"], "severities": [1, 5]},
    "labels only": {"attacks": "sign_opt:queries=20", "norm": "L2", "eps": "0.5"},
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_every_card_is_valid_and_never_says_that_a_rule_is_met(settings):
    run = evaluated(linear(), None, dataset=data(8), **settings)
    text = card_json(run)
    Draft202012Validator.check_schema(card_schema())
    Draft202012Validator(card_schema()).validate(json.loads(text))

    assert not re.search("complian", text + card_markdown(run), re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "knowledge"),
    [("white-box", {"white-box", "black-box, score-based queries"}), ("transfer", {"black-box, transfer"}),
     ("labels only", {"black-box, decision-based queries"})],
)  # fmt: skip
def test_what_the_attacker_knows_follows_from_what_the_attacks_see(name, knowledge):
    run = evaluated(linear(), None, dataset=data(8), **RUNS[name])

    assert set(card(run)["threat_model"]["knowledge"]) == knowledge


def test_the_drop_is_the_share_of_broken_images_and_its_interval_is_near_a_known_one():
    run = evaluated(linear(), None, dataset=data(60), attacks="fgsm", eps="0.1")
    entry = card(run)["models"][0]
    drop, broken = entry["under_attack"][0]["drop"], int(run.results["broken"].iloc[-1])
    low, high = proportion_confint(broken, 60, method="wilson")

    assert drop["value"] == pytest.approx(broken / 60)
    assert drop["ci_low"] == pytest.approx(low, abs=0.03)
    assert drop["ci_high"] == pytest.approx(high, abs=0.03)


def test_corrupted_images_are_on_the_card_or_among_what_was_not_tested():
    with_them = evaluated(linear(), None, dataset=data(20), attacks="fgsm", eps="0.1", corruptions=["fog", "contrast"])
    without = evaluated(linear(), None, dataset=data(20), attacks="fgsm", eps="0.1")
    rows = card(with_them)["models"][0]["corrupted"]

    assert [row["corruption"] for row in rows] == ["fog", "contrast", "all"]
    assert [row["accuracy"] for row in rows] == with_them.corruptions["accuracy"].tolist()
    assert f"corrupted: fog, severity 1-5 | {100 * rows[0]['accuracy']:.1f} %" in card_markdown(with_them)
    assert card(without)["models"][0]["corrupted"] == []
    assert "compression" not in " ".join(card(with_them)["not_tested"])
    assert "compression" in " ".join(card(without)["not_tested"])


def test_thresholds_say_when_they_were_declared(tmp_path):
    evaluated(linear(), tmp_path, dataset=data(12), attacks="fgsm", eps="0.1", declared=["Linf@0.1>=0.99"])
    found = card(load_run(tmp_path), ["clean>=0"])["thresholds"]

    assert [(each["condition"], each["declared"], each["met"]) for each in found] == [
        ("Linf@0.1>=0.99", "before the run", False), ("clean>=0", "when this card was written", True),
    ]  # fmt: skip


def test_what_is_declared_after_the_first_result_is_not_stored(tmp_path):
    for declared in ((), ("Linf@0.1>=0.1",)):
        evaluated(linear(), tmp_path, dataset=data(12), attacks="fgsm", eps="0.1", declared=declared)

    assert card(load_run(tmp_path))["thresholds"] == "not declared"


def test_an_unfinished_run_assesses_nothing_that_it_does_not_know(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluated(linear(), tmp_path, dataset=data(12), attacks="fgsm", eps="0.1", watch=Recorder(14))
    found = card(load_run(tmp_path), ["Linf@0.1>=0.5"])
    Draft202012Validator(card_schema()).validate(found)

    assert found["models"][0]["under_attack"][0]["worst_case"] == "not assessed"
    assert found["notes"][0].startswith("Unfinished: ")
    assert found["thresholds"][0]["met"] == "not assessed"


def test_the_same_bytes_again_and_hostile_names_stay_in_their_place(tmp_path):
    name = "a | b\n# c <script> [x](javascript:1)"
    run = evaluated(Classifier(linear(), name=name), tmp_path, dataset=data(8), attacks="fgsm", eps="0.1")
    text = card_markdown(run)

    assert text == card_markdown(load_run(tmp_path))
    assert card_json(run) == card_json(load_run(tmp_path))
    assert not re.search(r"(?<!\\)<script", text)
    assert "\n# c" not in text
    with pytest.raises(UserError, match="no result"):
        write_card(run, tmp_path / "card.md", ["L2@1>=0.5"])


def test_the_card_says_at_which_threat_a_result_is_not_reliable():
    run = evaluated(Classifier(linear(), name="net"), None, dataset=data(8), attacks="fgsm", eps=["0.01", "0.1"])
    failed = Check("net", "Linf 0.1", "transfer", "Transfer", "quick", "failed", "major", "It is.", "more found")
    noted = replace(run, checks=(failed,))

    assert card(noted)["models"][0]["notes"] == ["Not reliable: net (at Linf 0.1 more found)."]
    assert "Not reliable: net (at Linf 0.1 more found)." in card_markdown(noted)
    assert "Checks of whether the attacks failed: 1 failed." in card(noted)["notes"]


def test_a_run_without_checks_is_said_to_have_none():
    run = evaluated(linear(), None, dataset=data(8), attacks="fgsm", eps="0.1", checks="none")

    assert any("--checks none" in text for text in card(run)["not_tested"])


def test_the_union_and_the_bound_of_an_audit_are_on_the_card():
    run = evaluated(linear(), None, dataset=data(8), attacks="fgsm", eps=["Linf:0.1", "L2:0.3"], norm=["Linf", "L2"])
    union = run.results.query("role == 'union'").iloc[0]

    assert any(f"{union.correct}/{union.n}" in text and "every threat" in text for text in card(run)["notes"])
    assert f"{union.correct}/{union.n}" in card_markdown(run)


def test_distances_and_their_norm_are_on_the_card_and_not_among_what_was_not_tested():
    run = evaluated(linear(), None, dataset=data(8), attacks="fab:steps=2", norm="L2", eps="minimum")
    found = card(run)
    distance = run.results.query("role == 'worst-case'")["median_distance"].item()

    assert any(f"median distance in L2 {distance:.3g}" in text for text in found["notes"])
    assert "up to minimum" not in card_markdown(run)
    assert "perturbations in Linf, L1 and L0" in " ".join(found["not_tested"])


def test_the_noise_behind_a_certificate_is_on_the_card():
    run = evaluated(linear(), None, dataset=data(8), **RUNS["a certificate"])

    assert "sigma 0.1, 20 copies" in card_markdown(run)
