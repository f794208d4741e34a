"""The passes of checks: never more than the plan says, and within a factor of two of what the pilot predicts."""

import re
from pathlib import Path
from typing import Any

import pytest

from robustkit import Classifier
from robustkit.checks.attack_probe import AttackProbe
from robustkit.evaluation.check_costs import checks_at_most
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.prediction import predicted
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evaluation.stages import expected_work
from robustkit.host.progress import Silent
from tests.networks import Changed, Noisy
from tests.small import cnn, data, evidence, linear, only

CHEAP = ("normalisation", "unbounded", "gradient_direction", "longer_search", "eight_bits", "transfer_wins",
         "binarization")  # fmt: skip


@pytest.fixture(autouse=True)
def cheap_rules(monkeypatch):
    rules = only(*CHEAP)
    monkeypatch.setattr("robustkit.checks.register.RULES", rules)
    for probe in (probe for rule in rules for probe in rule.probes if isinstance(probe, AttackProbe)):
        for level, text in probe.specification.items():
            monkeypatch.setitem(probe.specification, level, re.sub(r"steps=\d+", "steps=12", text))
    monkeypatch.setattr("robustkit.checks.binarization._COUNT", 4)


def passes(folder: Path, models: Any, **request: Any) -> dict[str, tuple[float, float, int]]:
    """By model: predicted passes of its checks, the most by the plan, and those that a run made."""
    whole = resolve(EvaluationRequest(models, **{"dataset": data(40), "eps": "0.05", "norm": "Linf", **request}))
    carry_out(whole, folder, Silent())
    made = evidence(folder)["checked"]
    found = {}
    for each in whole.classifiers:
        costs = predicted(whole, each, Silent()).costs
        told = sum(cost.forwards + cost.backwards for cost in costs if cost.attack.startswith("check "))
        names = [each.name, *(other.name for other in whole.classifiers if other is not each)]
        bounds = checks_at_most(names, whole.plan, whole.checks, len(whole.ids))
        spent = sum(row[-2] + row[-1] for row in made if row[0] == each.name)
        found[each.name] = told, sum(cost.forwards + cost.backwards for cost in bounds), spent
    return found


def test_passes_of_checks_are_predicted_and_bounded(tmp_path):
    ((told, most, spent),) = passes(tmp_path, cnn(), attacks="pgd:steps=10", checks="full").values()

    assert spent / 2 < told < 2 * spent
    assert spent <= most


def test_pictures_of_other_models_are_counted_as_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only(*CHEAP[4:6]))
    hidden = Classifier(Changed(linear(), before=lambda x: (x * 64).round() / 64), name="hidden")
    models = [Classifier(linear(), name="open"), hidden]
    found = passes(tmp_path, models, attacks=["pgd:steps=10", "noise:queries=3"], checks="standard", eps="0.1")

    assert all(spent <= told <= most for told, most, spent in found.values())
    assert all(spent for _, _, spent in found.values())


def test_quick_checks_and_randomized_models_need_no_pass_of_checks():
    settings = {"dataset": data(20), "attacks": "pgd:steps=3", "eps": "0.05"}
    quick = resolve(EvaluationRequest(linear(), **settings))
    noisy = resolve(EvaluationRequest(Noisy(linear()), eot=2, checks="standard", **settings))

    assert [cost.attack for cost in predicted(quick, quick.classifiers[0], Silent()).costs] == ["clean", "pgd:steps=3"]
    assert [cost.attack for cost in predicted(noisy, noisy.classifiers[0], Silent()).costs] == ["clean", "pgd:steps=3"]
    assert checks_at_most(["net"], quick.plan, "quick", 20) == []


def test_the_passes_of_checks_belong_to_the_work_that_a_run_expects():
    settings = {"dataset": data(20), "attacks": "pgd:steps=3", "eps": "0.05"}
    standard, quick = (
        expected_work(resolve(EvaluationRequest(linear(), checks=level, **settings))) for level in ("standard", "quick")
    )

    assert standard.keys() - quick.keys() == {"sequential checks"}
    assert standard["sequential checks"] > sum(quick.values())


def test_the_gradients_that_no_attack_measures_are_predicted_and_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("gradients_mislead"))
    ((told, most, spent),) = passes(tmp_path, cnn(), attacks="pgd:steps=10").values()

    assert spent / 2 < told < 2 * spent
    assert 0 < spent <= most
