import pytest
import torch
from robustkit.attacks import APGD, PGD, Square
from torch import Tensor, nn

import robustkit
from robustkit.classifier.classifier import Classifier
from robustkit.errors import UserError
from tests.networks import Rounding
from tests.problems import problem


def rounded(count: int = 20) -> tuple[nn.Sequential, Tensor, Tensor]:
    made = problem("cnn", 1, 8, 8, count=count)
    model = nn.Sequential()
    model.add_module("quantise", Rounding(16))
    model.add_module("network", made.model)
    return model, made.x, model(made.x).argmax(1)


def broken(classifier: Classifier, x: Tensor, y: Tensor, eps: float = 0.1) -> int:
    return int(robustkit.attack(classifier, x, y, PGD(eps, steps=10, random_start=False)).success.sum())


@pytest.mark.filterwarnings("ignore:.*exactly zero")
def test_rounding_masks_the_gradient_and_a_surrogate_gradient_replaces_it():
    model, x, y = rounded()

    assert broken(Classifier(model), x, y) == 0
    assert broken(Classifier(model, bpda={"quantise": None}), x, y) == 20


def test_with_a_surrogate_gradient_a_faithful_layer_is_attacked_as_before():
    made = problem("cnn", 1, 8, 8, count=20)
    model = nn.Sequential(nn.Identity(), made.model)
    plain, hooked = (
        robustkit.attack(Classifier(model, fold=False, bpda=bpda), made.x, made.y, PGD(0.03, steps=5))
        for bpda in (None, {"0": None})
    )

    assert torch.equal(plain.x_adv, hooked.x_adv)


def test_the_surrogate_gradient_does_not_depend_on_the_batch_size():
    model, x, y = rounded()
    whole, parts = (
        robustkit.attack(Classifier(model, bpda={"quantise": torch.sigmoid}), x, y, PGD(0.04, steps=5), batch_size=size)
        for size in (20, 3)
    )

    assert torch.equal(whole.x_adv, parts.x_adv)


def test_an_unknown_layer_is_refused_with_the_nearest_name():
    model, x, y = rounded(4)
    with pytest.raises(UserError, match="quantise"):
        broken(Classifier(model, bpda={"quantize": None}), x, y)


def test_queries_need_no_surrogate_gradient():
    model, x, y = rounded(10)
    plain, hooked = (
        robustkit.attack(Classifier(model, bpda=bpda), x, y, Square(0.1, queries=20))
        for bpda in (None, {"quantise": None})
    )

    assert torch.equal(plain.x_adv, hooked.x_adv)


@pytest.mark.filterwarnings("ignore:.*exactly zero")
def test_saturated_probabilities_are_attacked_like_the_logits_below_them():
    made = problem("cnn", 1, 8, 8, count=40)
    # Logits so large that fp32 rounds nearly all probabilities to 0 and 1.
    head = made.model.head
    with torch.no_grad():
        head.weight.mul_(1000)
        head.bias.mul_(1000)
    model = nn.Sequential(made.model, nn.Softmax(1))
    method = PGD(0.03, steps=10, random_start=False, loss="margin")
    logits = robustkit.attack(made.model, made.x, made.y, method).success.sum()
    with pytest.warns(UserWarning, match="probabilities"):
        naive = robustkit.attack(model, made.x, made.y, method).success.sum()
    with_logits = robustkit.attack(Classifier(model, probabilities=True), made.x, made.y, method).success.sum()

    assert naive < with_logits
    assert with_logits >= 0.9 * logits


def test_a_run_with_a_surrogate_gradient_is_another_run(tmp_path):
    model, x, y = rounded(4)
    ask = {"dataset": (x, y), "attacks": "fgsm", "eps": 0.1, "norm": "Linf", "out": tmp_path}
    robustkit.evaluate(model, **ask)
    with pytest.raises(UserError, match=r"bpda\.quantise was not set, now identity"):
        robustkit.evaluate(model, bpda={"quantise": None}, **ask)


def test_a_targeted_attack_through_a_surrogate_gradient_reaches_its_class():
    model, x, y = rounded()
    target = (y + 1) % 4
    method = APGD(0.4, steps=30, loss="log-odds")
    ended = robustkit.attack(Classifier(model, bpda={"quantise": None}), x, y, method, target=target)

    assert ended.success.sum() >= 15
    assert torch.equal(ended.prediction[ended.success], target[ended.success])


def test_gradients_of_probabilities_are_compared_with_changes_of_their_logarithms():
    made = problem("cnn", 1, 8, 8, count=40)
    data, model = (made.x, made.model(made.x).argmax(1)), nn.Sequential(made.model, nn.Softmax(1))

    run = robustkit.evaluate(model, dataset=data, attacks="pgd:steps=5", eps=0.01, checks="full", probabilities=True)
    found = {check.name: check.status for check in run.checks}

    assert [found[name] for name in ("gradients_mislead", "finite_difference", "consistent_loss")] == ["ok"] * 3
