"""Every masked defense is found, explained and undone."""

import pytest

from robustkit.masked_defenses import DEFENSES, masking_layer
from tests.diagnosis.nets import defended, diagnosed, undefended_accuracy

every_defense = pytest.mark.parametrize("name", DEFENSES)


@pytest.fixture(scope="module")
def diagnoses():
    # Of a noisy network every query and every verdict takes many draws, and a quantised one is searched for long.
    few = {"noisy": 8, "quantised": 16}
    return {
        name: diagnosed(defended(name), few.get(name, 32), prove=True, loss=defense.loss)
        for name, defense in DEFENSES.items()
    }


@every_defense
def test_only_the_layer_of_the_defense_is_named_with_the_right_cause(diagnoses, name):
    verdicts = {row.layer: row.verdict for row in diagnoses[name].rows if row.verdict != "faithful"}

    assert verdicts == {masking_layer(name, defended(name)): DEFENSES[name].cause}


@every_defense
def test_with_the_prescribed_remedy_the_defense_is_worth_nothing(diagnoses, name):
    (remedy,) = diagnoses[name].prescription
    proof = diagnoses[name].proof

    assert (remedy.kind, remedy.layer) == (DEFENSES[name].prescription, masking_layer(name, defended(name)))
    # Three images of 32.
    assert proof.after <= undefended_accuracy() + 3 / 32
    assert proof.clean > 0.8


@pytest.mark.parametrize("name", ["quantised", "zeroed", "temperature"])
def test_without_the_remedy_the_same_attack_fails(diagnoses, name):
    assert diagnoses[name].proof.before > 0.8


@pytest.mark.parametrize("name", ["binarised", "detached"])
def test_an_attack_that_cannot_run_is_reported_with_the_reason(diagnoses, name):
    assert diagnoses[name].proof.before is None
    assert "No gradient reaches the image" in diagnoses[name].proof.refusal


@pytest.mark.parametrize(
    ("name", "verdict"),
    # PGD breaks every image through the softmax as it is, so robust accuracy is not too high.
    [("quantised", "masked"), ("softmax", "clear"), ("noisy", "randomized"), ("temperature", "loss saturated"),
     ("smoothed", "clear")],
)  # fmt: skip
def test_the_overall_verdict_tells_the_kinds_of_masking_apart(diagnoses, name, verdict):
    assert diagnoses[name].verdict == verdict
    assert diagnoses[name].masked == (verdict != "clear")


def test_large_logits_are_clear_for_a_loss_that_does_not_saturate():
    diagnosis = diagnosed(defended("temperature"), 32, prove=True)

    assert diagnosis.verdict == "clear"
    assert "Cross-entropy would have no usable gradient" in diagnosis.notes[0]


@pytest.mark.parametrize("norm", ["L2", "L1", "L0"])
def test_every_norm_finds_the_masking_layer(norm):
    diagnosis = diagnosed(defended("quantised"), 16, eps={"L2": 1, "L1": 5, "L0": 8}[norm], norm=norm)

    assert [(row.layer, row.verdict) for row in diagnosis.causes] == [("quantise", "step")]
