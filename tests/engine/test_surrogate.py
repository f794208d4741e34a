import pytest
import torch
from robustkit.attacks import APGD, FGSM, PGD
from torch import Tensor, nn

import robustkit
from robustkit.errors import UserError
from tests.problems import problem


class Counting(nn.Module):
    """Counts the images it is shown."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seen = model, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return self.model(x)


class Shuffled(nn.Module):
    """The same network, with its classes in another order."""

    def __init__(self, model: nn.Module, order: list[int]) -> None:
        super().__init__()
        self.model, self.order = model, order

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[:, self.order]


def test_a_surrogate_that_is_the_model_finds_what_the_model_itself_leads_to():
    made = problem("cnn", 1, 8, 8, count=40)
    own = robustkit.attack(made.model, made.x, made.y, FGSM(0.03))
    crossed = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=made.model)

    assert 0 < own.success.sum() < 40
    assert torch.equal(own.success, crossed.success)
    assert torch.equal(own.x_adv, crossed.x_adv)


def test_the_attacked_model_is_asked_no_more_for_more_steps():
    made, counts = problem("cnn", 1, 8, 8, count=20), []
    other = problem("cnn", 1, 8, 8, count=20, seed=5).model
    for steps in (2, 30):
        target = Counting(made.model)
        robustkit.attack(target, made.x, made.y, PGD(0.05, steps=steps), surrogate=other)
        counts.append(sum(target.seen))

    assert counts[0] == counts[1]


def test_every_trial_spends_all_of_its_steps_on_the_surrogate():
    made = problem("cnn", 1, 8, 8, count=20)
    ended = robustkit.attack(made.model, made.x, made.y, PGD(0.05, steps=7), surrogate=made.model)

    assert ended.success.any()
    assert ended.queries.tolist() == [7] * 20


def test_the_classes_aimed_at_are_the_surrogates_likeliest():
    made = problem("cnn", 1, 8, 8, count=10)
    order = torch.randperm(made.model(made.x).shape[1], generator=torch.Generator().manual_seed(3)).tolist()
    surrogate = Shuffled(made.model, order)
    wrong = surrogate(made.x).scatter(1, made.y[:, None], -torch.inf).argmax(1)
    ended = []
    for target in (None, wrong):
        method = APGD(0.2, steps=5, loss="dlr", targets=0 if target is not None else 1)
        ended.append(robustkit.attack(made.model, made.x, made.y, method, target=target, surrogate=surrogate))

    # The same class is aimed at, and the noise is keyed by it, so the last points are the same.
    assert torch.equal(ended[0].x_adv, ended[1].x_adv)


def test_a_surrogate_without_the_class_of_an_image_is_refused():
    made = problem("cnn", 1, 8, 8, count=20)
    few = nn.Sequential(nn.Flatten(), nn.Linear(64, int(made.y.max())))
    with pytest.raises(UserError, match="no class of the model"):
        robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=few)


def test_a_transferred_evaluation_says_so_and_keeps_apart_from_another(tmp_path):
    made, other = problem("cnn", 1, 8, 8, count=20), problem("cnn", 1, 8, 8, count=20, seed=5).model
    ask = {"dataset": (made.x, made.y), "attacks": "fgsm", "eps": 0.03, "norm": "Linf", "out": tmp_path}
    run = robustkit.evaluate(made.model, surrogates=other, **ask)
    by_hand = robustkit.attack(made.model, made.x, made.y, FGSM(0.03), surrogate=other)

    row = run.results[run.results.attack == "fgsm@cnn"].iloc[0]
    assert run.manifest["identity"]["surrogates"][0]["name"] == "cnn"
    assert row.broken == by_hand.success.sum()
    with pytest.raises(UserError, match="surrogate cnn: sha256"):
        robustkit.evaluate(made.model, surrogates=made.model, **ask)


def test_each_of_several_surrogates_has_its_own_column_of_every_attack():
    made, other = problem("cnn", 1, 8, 8, count=20), problem("cnn", 1, 8, 8, count=20, seed=5).model
    run = robustkit.evaluate(
        [made.model, other], surrogates=[made.model, other], dataset=(made.x, made.y), attacks=["fgsm", "standard"],
        eps=0.03, norm="Linf",
    )  # fmt: skip
    broken = run.results.set_index(["model", "attack"]).broken

    names = ["fgsm@cnn", "standard@cnn", "fgsm@cnn-2", "standard@cnn-2"]
    assert [name for name in broken["cnn"].index if "/" not in name][1:-1] == names
    assert broken["cnn", "fgsm@cnn"] > broken["cnn", "fgsm@cnn-2"]
    assert broken["cnn-2", "fgsm@cnn-2"] > broken["cnn-2", "fgsm@cnn"]
