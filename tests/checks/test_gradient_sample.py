"""Gradients that no attack of a run measures: of attacks that a user names, and of randomized models."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from robustkit import Classifier
from robustkit.checks.check import Finding
from robustkit.checks.facts import ProbeRecord, RunThreat
from robustkit.checks.gradient_sample import PROBE
from robustkit.checks.gradients_mislead import judge
from robustkit.checks.probing import REFUSED
from robustkit.primitives.ensembles import stages
from tests.checks.facts import facts
from tests.networks import Changed, Falsified, Noisy
from tests.small import Recorder, cnn, data, ensemble, evaluated, evidence, linear

HERE = RunThreat("Linf", "0.1")
NAMED = {"places": (HERE,), "gradients_followed": True}
HIDES, TURNS, ERRS, MISSES, CROOKED, ROUGH = 1.0, 2.0, 4.0, 5.0, 6.0, 7.0


def reversed_gradient(network: nn.Module) -> nn.Module:
    return Changed(network, before=lambda x: Falsified.apply(x, -1, 1))


def finding(values: list[float], broken: int = 0, **given: Any) -> Finding:
    """Of 24 survivors that were looked at, the first ones with these values, of which APGD broke some."""
    known = facts(**NAMED, **given)
    (wanted,) = PROBE.wanted(known)
    values = values + [0.0] * (24 - len(values))
    rows = {
        number: ProbeRecord("net", *HERE, wanted.probe, number, int(0 < value < CROOKED or at < broken), value, 9, 3)
        for at, (number, value) in enumerate(zip(wanted.images, values, strict=True))
    }
    (found,) = judge(replace(known, probes={(*HERE, wanted.probe): rows}))
    return found


def check_of(run):
    (check,) = (check for check in run.checks if check.name == "gradients_mislead")
    return check


@pytest.mark.parametrize(
    ("values", "misled", "status"),
    [
        ([], 0, "ok"),
        ([TURNS] * 3, 3, "ok"),  # an honest network can have flat spots
        ([TURNS] * 4, 4, "failed"),
        ([ERRS] * 6 + [CROOKED] * 2, 6, "failed"),
        ([ERRS] * 6 + [CROOKED] * 6, 0, "ok"),  # of a network whose logits are rounded
        ([MISSES] * 24, 24, "failed"),
    ],
)
def test_more_than_one_image_in_twenty_must_mislead(values, misled, status):
    found = finding(values)

    assert (found.status, len(found.images), found.numbers["misled"]) == (status, misled, misled)


@pytest.mark.parametrize(("broken", "status"), [(0, "ok"), (1, "ok"), (2, "failed"), (20, "failed")])
def test_a_gradient_that_is_right_nearby_and_leads_nowhere_counts_where_another_attack_succeeds(broken, status):
    found = finding([ROUGH] * 22, broken)

    assert (found.status, len(found.images), found.numbers["rough"]) == (status, broken, 22)
    assert (f"APGD with 40 steps broke {broken} of them" in found.text) == (status == "failed")


def test_pgd_in_front_of_fast_waves_is_not_reported_as_robust_in_silence():
    """PGD with 40 steps left 93 % of a network behind x + 0.02 sin(300x), AutoAttack 47 %."""
    waves = Changed(cnn(), before=lambda x: x + 0.02 * torch.sin(300 * x))
    run = evaluated(waves, None, dataset=data(30), attacks="pgd:steps=10", eps="0.1")

    assert check_of(run).status == "failed"
    assert "Attack with --attack default." in check_of(run).finding
    assert check_of(run).numbers["broken"] > 2


def test_the_finding_says_what_was_seen_and_of_what():
    assert (
        "on 5 of 24 survivors that were looked at, the gradient predicts nothing, or values"
        in finding([HIDES] * 2 + [MISSES] * 3).text
    )
    assert "with the same random draw in every query" in finding([], randomized=True).text
    assert finding([REFUSED] * 24).status == "not_applicable"


@pytest.mark.parametrize(
    "given",
    [
        {"gradients_followed": False},
        {"smoothed": True},
        {"answers_only": True},
        {"transferred": True},
        {"straight_through": True},
        {"replaced": ("layer",)},
        {"attacks": ({"name": "rk-14/first", "measures": {"Linf": {"classes": 4}}},)},
        {"places": (RunThreat("Linf", "0"), RunThreat("L0", "3"), RunThreat("Linf", "minimum"))},
    ],
    ids=lambda given: next(iter(given)),
)
def test_nothing_is_looked_at_where_it_would_say_nothing_or_is_measured_anyway(given):
    assert not list(PROBE.wanted(facts(**{**NAMED, **given})))


def test_default_measures_no_randomized_model_so_it_is_looked_at():
    measures = ({"name": "rk-14/first", "measures": {"Linf": {"classes": 4}}},)

    assert list(PROBE.wanted(facts(**NAMED, attacks=measures, randomized=True)))


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("make", [pytest.param(linear, marks=pytest.mark.slow), cnn])
def test_an_attack_that_is_named_on_a_wrong_backward_pass_is_no_longer_silent(make, norm, tmp_path):
    """PGD left 100 % behind a reversed gradient, 87 % without it, and no quick check said a word."""
    radius = {"Linf": "0.05", "L2": "0.3", "L1": "1"}[norm]
    given = {"dataset": data(30), "attacks": "pgd:steps=3", "norm": norm, "eps": radius}
    run = evaluated(reversed_gradient(make()), tmp_path, **given)
    honest = evaluated(make(), None, **given)
    costs = [row[-2:] for row in evidence(tmp_path)["checked"] if row[3] == "gradients against steps"]

    assert check_of(run).status == "failed"
    assert "robustkit diagnose" in " ".join(run.manifest["warnings"])
    assert costs
    assert all(forwards <= 9 and backwards <= 3 for forwards, backwards in costs)
    assert (check_of(honest).status, check_of(honest).images) == ("ok", ())


@pytest.mark.parametrize("source", ["torch", pytest.param("numpy", marks=pytest.mark.slow), "python"])
def test_a_wrong_backward_pass_behind_noise_is_no_longer_reported_as_robust_in_silence(source):
    """Nothing was measured on randomized models: one with a reversed gradient was 96 % robust without a warning."""
    given = {"dataset": data(8), "attacks": "pgd:steps=2", "eps": "0.05"}
    runs = [
        evaluated(Classifier(Noisy(network, source, 0.02), eot=2, draws=64), None, **given)
        for network in (reversed_gradient(cnn()), cnn())
    ]

    assert [check_of(run).status for run in runs] == ["failed", "ok"]
    assert not check_of(runs[1]).images
    assert "with the same random draw in every query" in check_of(runs[0]).finding


def test_an_interrupted_run_looks_at_the_rest_and_no_batch_size_changes_a_row(tmp_path):
    given = {"dataset": data(30), "attacks": "pgd:steps=2", "eps": "0.02"}
    whole = evaluated(reversed_gradient(cnn()), None, **given)
    with pytest.raises(KeyboardInterrupt):
        evaluated(reversed_gradient(cnn()), tmp_path, **given, watch=Recorder(stop_after=70))
    again = evaluated(reversed_gradient(cnn()), tmp_path, **given, batch_size=5)

    assert check_of(again) == check_of(whole)
    assert check_of(again).numbers["images"] == 24
    watch = Recorder()
    evaluated(reversed_gradient(cnn()), tmp_path, **given, watch=watch)
    assert watch.images == 0


def test_what_is_looked_at_once_is_not_looked_at_again_by_default(tmp_path):
    """A finished run that gets the first member of `default` has measurements of all images, which count instead."""
    given = {"dataset": data(12), "eps": "0.05"}
    evaluated(reversed_gradient(cnn()), tmp_path, **given, attacks="pgd:steps=2")
    with ensemble("first", {"Linf": stages("default", "Linf")[:1]}) as first:
        run = evaluated(reversed_gradient(cnn()), tmp_path, **given, attacks=["pgd:steps=2", first])

    assert check_of(run).status == "failed"
    assert "that the first steps did not break" in check_of(run).finding
