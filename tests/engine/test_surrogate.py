import pytest
import torch
from robustkit.attacks import APGD, FGSM, MIFGSM, PGD
from torch import nn

import robustkit
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.surrogate_ensemble import surrogate_ensemble
from robustkit.errors import UserError
from robustkit.primitives import ensembles
from tests.networks import Changed, Recording
from tests.problems import problem
from tests.small import shortened


def test_a_surrogate_model_that_is_the_attacked_model_gives_the_same_witnesses():
    made = problem("cnn", 1, 8, 8, count=40)
    own = robustkit.attack(made.model, made.x, made.y, FGSM(0.03))
    crossed = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=made.model)

    assert 0 < own.success.sum() < 40
    assert torch.equal(own.success, crossed.success)
    assert torch.equal(own.x_adv, crossed.x_adv)


def test_no_surrogate_model_at_all_is_an_error_of_one_line():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.raises(UserError, match="surrogate names no model"):
        robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=[])


def test_more_steps_query_the_surrogate_model_and_not_the_attacked_one():
    made, counts = problem("cnn", 1, 8, 8, count=20), []
    other = problem("cnn", 1, 8, 8, count=20, seed=5).model
    for steps in (2, 10):
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
    with pytest.raises(UserError, match="not a class of the model"):
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
    monkeypatch.setitem(ensembles.ENSEMBLES, "rk-14", tuple(map(shortened, ensembles.stages("rk-14", "Linf"))))
    made, other = problem("cnn", 1, 8, 8, count=8), problem("cnn", 1, 8, 8, count=8, seed=5).model
    run = robustkit.evaluate(
        [made.model, other], surrogates=[made.model, other], dataset=(made.x, made.y), attacks=["fgsm", "default"],
        eps=0.03, norm="Linf",
    )  # fmt: skip
    broken = run.results.set_index(["model", "attack"]).broken

    names = ["fgsm@smallconvnet", "rk-14@smallconvnet", "fgsm@smallconvnet-2", "rk-14@smallconvnet-2"]
    assert [name for name in broken["smallconvnet"].index if "/" not in name][1:-1] == names
    assert broken["smallconvnet", "fgsm@smallconvnet"] > broken["smallconvnet", "fgsm@smallconvnet-2"]
    assert broken["smallconvnet-2", "fgsm@smallconvnet-2"] > broken["smallconvnet-2", "fgsm@smallconvnet"]


class Halved(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return (self.first(x) + self.second(x)) / 2


def test_several_surrogate_models_are_queried_for_the_mean_of_their_logits():
    made, others = problem("cnn", 1, 8, 8, count=20), [problem("cnn", 1, 8, 8, seed=seed).model for seed in (5, 6)]
    both = robustkit.attack(made.model, made.x, made.y, MIFGSM(0.03, steps=4), surrogate=others)
    by_hand = robustkit.attack(made.model, made.x, made.y, MIFGSM(0.03, steps=4), surrogate=Halved(*others))
    one = robustkit.attack(made.model, made.x, made.y, MIFGSM(0.03, steps=4), surrogate=others[0])

    assert torch.equal(both.x_adv, by_hand.x_adv)
    assert not torch.equal(both.x_adv, one.x_adv)


def test_the_networks_of_an_ensemble_are_folded_as_they_are_alone():
    made = problem("cnn", 1, 8, 8, count=4)
    ensemble = surrogate_ensemble([Classifier(made.model), Classifier(problem("cnn", 1, 8, 8, seed=5).model)])
    with ensemble.session(made.x) as session:
        assert session.search.folded


def test_surrogate_models_with_other_classes_are_no_ensemble():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.raises(UserError, match=r"the same classes, but they have \[4, 5\]"):
        robustkit.attack(
            made.model, made.x, made.y, FGSM(0.03), surrogate=[made.model, problem("cnn", 1, 8, 8, classes=5).model]
        )


def test_a_surrogate_model_with_gradients_of_its_own_is_no_part_of_an_ensemble():
    made = problem("cnn", 1, 8, 8, count=4)
    with pytest.raises(UserError, match="an ensemble takes plain models"):
        surrogate_ensemble([Classifier(made.model), Classifier(made.model, bpda={"body": None})])
    with pytest.raises(UserError, match="the same bounds"):
        surrogate_ensemble([Classifier(made.model), Classifier(made.model, bounds=(0, 255))])


def test_an_evaluation_has_one_column_for_an_ensemble_of_surrogate_models():
    made, other = problem("cnn", 1, 8, 8, count=12), problem("cnn", 1, 8, 8, seed=5).model
    ask = {"dataset": (made.x, made.y), "attacks": "fgsm", "eps": 0.03, "norm": "Linf"}
    run = robustkit.evaluate(made.model, surrogates=[made.model, other], surrogate_ensemble=True, **ask)
    by_hand = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=[made.model, other])

    row = run.results[run.results.attack == "fgsm@smallconvnet+smallconvnet-2"].iloc[0]
    assert row.broken == by_hand.success.sum()
    with pytest.raises(UserError, match="at least two"):
        robustkit.evaluate(made.model, surrogates=other, surrogate_ensemble=True, **ask)
