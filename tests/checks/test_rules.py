"""Each rule on evidence that is made for it: what it fails on, and what it lets pass."""

from dataclasses import replace

import numpy as np
import pytest

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.check import Check
from robustkit.checks.facts import FreshAnswers, ProbeRecord, RunThreat, StoredWitness
from robustkit.checks.impossible_claim import meet
from robustkit.checks.register import RULES, checks_of
from robustkit.checks.straight_through import PROBES as STRAIGHT_THROUGH
from robustkit.checks.zero_gradients import PROBE
from tests.checks.facts import facts

HERE = RunThreat("Linf", "0.1")


def found(name: str, **given: object) -> list[Check]:
    return [check for check in checks_of(facts(**given)) if check.name == name]


def statuses(name: str, **given: object) -> list[str]:
    return [check.status for check in found(name, **given)]


def rows(broken=(), count=40, **values):
    columns = {"queries_to_break": 1, "forwards": 11, "backwards": 10, **values}
    made = AttackColumns.of((number, number in broken, *[0] * 10) for number in range(count))
    return replace(made, **{name: np.full(count, value) for name, value in columns.items()})


def test_every_rule_has_a_row_for_a_run_without_rows():
    assert [check.name for check in checks_of(facts(places=(HERE,)))] == [rule.name for rule in RULES]


def test_no_checks_are_made_when_they_are_switched_off():
    assert checks_of(facts(level="none")) == ()


def test_passes_of_a_higher_level_are_not_run():
    assert {check.status for check in checks_of(facts()) if check.level != "quick"} == {"not_run"}


def test_a_single_step_that_beats_many_is_not_reliable():
    single, many = rows(range(12), backwards=1), rows(range(2))
    attacked = {(*HERE, "fgsm"): single, (*HERE, "pgd"): many}
    (check,) = found("single_step", places=(HERE,), attacked=attacked)

    assert check.status == "failed"
    assert check.images == tuple(range(2, 12))
    assert check.numbers["p"] == pytest.approx(2**-10)


def test_many_steps_that_beat_one_are_ok():
    attacked = {(*HERE, "fgsm"): rows(range(4), backwards=1), (*HERE, "pgd"): rows(range(3, 30))}

    assert statuses("single_step", places=(HERE,), attacked=attacked) == ["warning"]
    attacked |= {(*HERE, "pgd"): rows(range(30))}
    assert statuses("single_step", places=(HERE,), attacked=attacked) == ["ok"]


def test_images_without_gradients_are_named():
    blind = {number: ProbeRecord("net", *HERE, PROBE + "pgd", number, 1, 10, 0, 0) for number in (3, 5, 7)}
    attacked = {(*HERE, "pgd"): rows(range(30))}
    (check,) = found("zero_gradients", places=(HERE,), attacked=attacked, probes={(*HERE, PROBE + "pgd"): blind})
    assert check.status == "ok"  # they were broken all the same

    attacked = {(*HERE, "pgd"): rows(range(10, 38)), (*HERE, "square"): rows(range(40), backwards=0)}
    (check,) = found("zero_gradients", places=(HERE,), attacked=attacked, probes={(*HERE, PROBE + "pgd"): blind})
    assert (check.status, check.images) == ("failed", (3, 5, 7))


def test_another_attack_that_has_gradients_speaks_for_an_image():
    blind = {3: ProbeRecord("net", *HERE, PROBE + "pgd", 3, 1, 10, 0, 0)}
    attacked = {(*HERE, "pgd"): rows(), (*HERE, "apgd"): rows()}

    assert statuses("zero_gradients", places=(HERE,), attacked=attacked, probes={(*HERE, PROBE + "pgd"): blind}) == [
        "ok"
    ]


def test_successes_in_the_last_steps_are_unfinished():
    late = replace(rows(range(6)), queries_to_break=np.where(np.arange(40) < 6, 19, 20))
    attacks = ({"name": "pgd", "steps": 20, "restarts": 1, "targets": 0},)
    given = {"places": (HERE,), "attacks": attacks}

    assert statuses("unfinished", **given, attacked={(*HERE, "pgd"): late}) == ["warning"]
    assert statuses("unfinished", **given, attacked={(*HERE, "pgd"): late, (*HERE, "apgd"): rows(range(9))}) == ["ok"]


def test_transferred_points_are_judged_at_the_end_and_so_never_late():
    late = replace(rows(range(6)), queries_to_break=np.full(40, 20))
    attacks = ({"name": "mifgsm", "steps": 20, "restarts": 1, "targets": 0},)
    given = {"places": (HERE,), "attacks": attacks, "attacked": {(*HERE, "mifgsm"): late}}

    assert statuses("unfinished", **given) == ["warning"]
    assert statuses("unfinished", **given, transferred=True) == ["not_applicable"]


def test_an_image_that_recovers_at_a_larger_radius_contradicts_the_evidence():
    smaller, larger = rows({4, 5}), rows({5})
    attacked = {("Linf", "0.1", "pgd"): smaller, ("Linf", "0.2", "pgd"): larger}
    (check,) = found("monotone_radius", attacked=attacked)

    assert (check.status, check.threat, check.images) == ("failed", "Linf", (4,))


def test_softmax_outputs_are_recognised():
    logits = np.random.default_rng(0).normal(size=(8, 10)).astype(np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    assert statuses("probabilities", logits=(logits,)) == ["ok"]
    assert statuses("probabilities", logits=(shares,)) == ["failed"]
    assert statuses("probabilities", logits=(shares,), says_probabilities=True) == ["ok"]
    sigmoids = (1 / (1 + np.exp(-3 * logits))).astype(np.float32)
    assert statuses("probabilities", logits=(sigmoids,), gradients_followed=True) == ["warning"]
    assert statuses("probabilities", logits=(sigmoids * 1e-3,), gradients_followed=True) == [
        "ok"
    ]  # small logits of a last ReLU


def test_outputs_that_are_tied_on_clean_images_are_no_logits():
    """Logits clipped at 6 left 29 of 86 images without a word, and an attack on what was clipped none."""
    logits = np.random.default_rng(0).normal(0, 4, (64, 10)).astype(np.float32)
    clipped = logits.clip(max=5)
    tied = int((np.sort(clipped, 1)[:, -1] == np.sort(clipped, 1)[:, -2]).sum())

    (check,) = found("probabilities", logits=(clipped,), gradients_followed=True)
    assert (check.status, check.numbers["tied"]) == ("failed", tied)
    assert statuses("probabilities", logits=(clipped,), straight_through=True, gradients_followed=True) == ["warning"]
    assert statuses("probabilities", logits=(clipped,), gradients_followed=False) == ["ok"]  # scores of a black box
    few = logits.copy()
    few[:2, :2] = 50
    assert statuses("probabilities", logits=(few[:5],), gradients_followed=True) == ["ok"]
    # The number of columns is not stored: in a wrong shape the zeros of two images stood in one row.
    sure = np.where(logits == logits.max(1, keepdims=True), 0, -20).astype(np.float32) + np.arange(10) * 1e-3
    wrong = sure.reshape(40, 16).astype(np.float32)
    assert statuses("probabilities", logits=(wrong, sure.astype(np.float32)), classes=10, gradients_followed=True) == [
        "ok"
    ]


@pytest.mark.parametrize(
    ("norm", "eps", "result"),
    [("Linf", 0.25, True), ("Linf", 0.24, False), ("L2", 0.5, True), ("L2", 0.49, False), ("L1", 1.0, True),
     ("L1", 0.99, False), ("L0", 2, True), ("L0", 1, False)],
)  # fmt: skip
def test_balls_meet_where_the_distance_is_twice_the_radius(norm, eps, result):
    one = np.full((1, 2, 2), 0.25)
    other = one + 0.5

    assert meet(one, other, norm, eps) is result


def test_two_near_images_of_different_classes_are_not_both_robust():
    x = np.full((1, 2, 2), 0.5, dtype=np.float32)
    stored = tuple(
        StoredWitness(*HERE, "pgd", number, "net", False, x + step, x) for number, step in ((3, 0), (4, 0.2))
    )
    (check,) = found("impossible_claim", places=(HERE,), attacked={(*HERE, "pgd"): rows()}, witnesses=stored)
    assert (check.status, check.images) == ("failed", (3, 4))

    (check,) = found("impossible_claim", places=(HERE,), attacked={(*HERE, "pgd"): rows({3})}, witnesses=stored)
    assert check.status == "ok"


def test_at_half_the_range_every_image_can_become_grey():
    place = RunThreat("Linf", "0.5")

    assert statuses("impossible_claim", places=(place,), attacked={(*place, "pgd"): rows()}) == ["failed"]
    one_class = rows({number for number in range(40) if number % 10})
    assert statuses("impossible_claim", places=(place,), attacked={(*place, "pgd"): one_class}) == ["ok"]


@pytest.mark.parametrize(("broken", "status"), [(0, "ok"), (1, "ok"), (2, "failed"), (12, "failed")])
def test_a_longer_search_is_counted_in_points_of_the_headline(broken, status):
    given = {"places": (HERE,), "level": "standard", "attacked": {(*HERE, "pgd"): rows()}}
    drawn = facts(**given).drawn(range(40), 24)
    probed = {number: ProbeRecord("net", *HERE, "apgd:steps=200", number, int(at < broken), 0, 0, 0)
              for at, number in enumerate(drawn)}  # fmt: skip
    (check,) = found("longer_search", **given, probes={(*HERE, "apgd:steps=200"): probed})

    assert (check.status, len(check.images)) == (status, broken)
    missing = dict(list(probed.items())[1:])
    assert statuses("longer_search", **given, probes={(*HERE, "apgd:steps=200"): missing}) == ["not_run"]


@pytest.mark.parametrize(("broken", "status"), [(0, "ok"), (1, "ok"), (2, "failed")])
def test_gradients_straight_through_count_where_the_forward_stops_them(broken, status):
    given = {"places": (HERE,), "attacked": {(*HERE, "pgd"): rows()}, "gradient_stops": ("round (net.py, line 3)",)}
    drawn = facts(**given).drawn(range(40), 24)
    probed = {
        (*HERE, probe.specification["quick"] + " straight through"): {
            number: ProbeRecord("net", *HERE, "", number, int(at < broken), 0, 0, 0) for at, number in enumerate(drawn)
        }
        for probe in STRAIGHT_THROUGH
    }
    (check,) = found("straight_through", **given, probes=probed)

    assert (check.status, len(check.images)) == (status, broken)
    assert "straight through round (net.py, line 3) broke" in check.finding
    assert statuses("straight_through", **given) == ["not_run"]
    assert statuses("straight_through", **{**given, "gradient_stops": ()}) == ["not_applicable"]
    assert statuses("straight_through", **given, straight_through=True) == ["not_applicable"]
    assert statuses("straight_through", **given, smoothed=True) == ["not_applicable"]


def test_errors_of_a_randomized_model_must_hold_on_fresh_draws():
    broken = range(20)
    hold = {number: FreshAnswers(2, 32) for number in broken}
    given = {"places": (HERE,), "randomized": True, "attacked": {(*HERE, "pgd"): rows(broken)}}

    assert statuses("fresh_answers", **given, fresh={(*HERE, "pgd"): hold}) == ["ok"]
    lucky = hold | {number: FreshAnswers(30, 32) for number in range(10)}
    (check,) = found("fresh_answers", **given, fresh={(*HERE, "pgd"): lucky})
    assert (check.status, check.images) == ("failed", tuple(range(10)))
    assert statuses("fresh_answers", places=(HERE,)) == ["not_applicable"]
