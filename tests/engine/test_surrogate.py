import re

import pytest
import torch
from robustkit.attacks import APGD, FGSM, PGD
from torch import nn

import robustkit
from robustkit.errors import UserError
from robustkit.primitives import ensembles
from tests.networks import Changed, Recording
from tests.problems import problem


def test_a_surrogate_model_that_is_the_attacked_model_gives_the_same_witnesses():
    made = problem("cnn", 1, 8, 8, count=40)
    own = robustkit.attack(made.model, made.x, made.y, FGSM(0.03))
    crossed = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=made.model)

    assert 0 < own.success.sum() < 40
    assert torch.equal(own.success, crossed.success)
    assert torch.equal(own.x_adv, crossed.x_adv)


def test_more_steps_query_the_surrogate_model_and_not_the_attacked_one():
    made, counts = problem("cnn", 1, 8, 8, count=20), []
    other = problem("cnn", 1, 8, 8, count=20, seed=5).model
    for steps in (2, 30):
        target = Recording(made.model)
        robustkit.attack(target, made.x, made.y, PGD(0.05, steps=steps), surrogate=other)
        counts.append(target.rows)

    assert counts[0] == counts[1]


def test_every_trial_spends_all_its_steps_on_the_surrogate_model():
    made = problem("cnn", 1, 8, 8, count=20)
    ended = robustkit.attack(made.model, made.x, made.y, PGD(0.05, steps=7), surrogate=made.model)

    assert ended.success.any()
    assert ended.queries.tolist() == [7] * 20


def test_the_targets_are_the_likeliest_wrong_classes_of_the_surrogate_model():
    made = problem("cnn", 1, 8, 8, count=10)
    order = torch.randperm(made.model(made.x).shape[1], generator=torch.Generator().manual_seed(3)).tolist()
    surrogate = Changed(made.model, lambda logits: logits[:, order])
    wrong = surrogate(made.x).scatter(1, made.y[:, None], -torch.inf).argmax(1)
    ended = []
    for target in (None, wrong):
        method = APGD(0.2, steps=5, loss="dlr", targets=0 if target is not None else 1)
        ended.append(robustkit.attack(made.model, made.x, made.y, method, target=target, surrogate=surrogate))

    # The same class is aimed at, and the noise is keyed by it, so the last points are the same.
    assert torch.equal(ended[0].x_adv, ended[1].x_adv)


def test_a_surrogate_model_without_the_class_of_an_image_is_refused():
    made = problem("cnn", 1, 8, 8, count=20)
    few = nn.Sequential(nn.Flatten(), nn.Linear(64, int(made.y.max())))
    with pytest.raises(UserError, match="no class of the model"):
        robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=few)


def test_a_transfer_evaluation_names_its_surrogate_model_and_refuses_another_one(tmp_path):
    made, other = problem("cnn", 1, 8, 8, count=20), problem("cnn", 1, 8, 8, count=20, seed=5).model
    ask = {"dataset": (made.x, made.y), "attacks": "fgsm", "eps": 0.03, "norm": "Linf", "out": tmp_path}
    run = robustkit.evaluate(made.model, surrogates=other, **ask)
    by_hand = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=other)

    row = run.results[run.results.attack == "fgsm@smallconvnet"].iloc[0]
    assert run.manifest["identity"]["surrogates"][0]["name"] == "smallconvnet"
    assert row.broken == by_hand.success.sum()
    with pytest.raises(UserError, match="surrogate smallconvnet: its weights"):
        robustkit.evaluate(made.model, surrogates=made.model, **ask)


def test_each_surrogate_model_has_its_own_column_of_every_attack(monkeypatch):
    # The budgets of the later members do not matter here.
    stages = [stage._replace(specification=re.sub(r"=(30|1000?)\b", "=5", stage.specification))
              for stage in ensembles.stages("rk-3", "Linf")]  # fmt: skip
    monkeypatch.setitem(ensembles.ENSEMBLES, "rk-3", tuple(stages))
    made, other = problem("cnn", 1, 8, 8, count=8), problem("cnn", 1, 8, 8, count=8, seed=5).model
    run = robustkit.evaluate(
        [made.model, other], surrogates=[made.model, other], dataset=(made.x, made.y), attacks=["fgsm", "default"],
        eps=0.03, norm="Linf",
    )  # fmt: skip
    broken = run.results.set_index(["model", "attack"]).broken

    names = ["fgsm@smallconvnet", "rk-3@smallconvnet", "fgsm@smallconvnet-2", "rk-3@smallconvnet-2"]
    assert [name for name in broken["smallconvnet"].index if "/" not in name][1:-1] == names
    assert broken["smallconvnet", "fgsm@smallconvnet"] > broken["smallconvnet", "fgsm@smallconvnet-2"]
    assert broken["smallconvnet-2", "fgsm@smallconvnet-2"] > broken["smallconvnet-2", "fgsm@smallconvnet"]
