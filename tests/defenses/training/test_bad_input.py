"""Input that cannot be used is refused in one sentence that names the fix, before anything is changed or written."""

import pytest
import torch
from robustkit.defenses import PRESETS, Recipe, finetune
from robustkit.defenses.training.checks import checked_data
from robustkit.defenses.training.finetuning import inner_attack_of
from torch import nn

from robustkit import Classifier
from robustkit.data import from_tensors
from robustkit.errors import UserError
from tests.defenses.doubles import Wrapped, head
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, digits, net, state

X, Y = TRAIN
WIDE = X.expand(-1, 3, -1, -1), VAL[0].expand(-1, 3, -1, -1)


def refused(words, *, recipe=SHORT, train=TRAIN, val=VAL, eps=0.1, norm="Linf", model=None, **more) -> str:
    network = net() if model is None else model
    before, flags = state(network), [weight.requires_grad for weight in network.parameters()]
    with pytest.raises(UserError, match=words) as caught:
        finetune(network, train, val, eps=eps, norm=norm, recipe=recipe, **more)

    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert changed(network, before) == set()
    assert [weight.requires_grad for weight in network.parameters()] == flags
    return text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"val": (X[:0], Y[:0])}, "is empty"), ({"train": (X[:1], Y[:1])}, "one training image"),
        ({"val": (X[:5], Y[:5])}, "5 validation images are training images too"),
        ({"test": (X[7:9], Y[7:9])}, "2 test images are training images too"),
        ({"test": (VAL[0][:3], VAL[1][:3])}, "3 test images are validation images too"),
        ({"train": (X, Y + 5)}, "classes 0 to 14, but the model has 10 outputs"),
        ({"val": (VAL[0], VAL[1] + 7)}, "classes 0 to 16"), ({"val": (WIDE[1], VAL[1])}, "images of 3x8x8"),
        ({"train": (WIDE[0], Y), "val": (WIDE[1], VAL[1])}, "1x8x8|3x8x8"),
        ({"train": (digits(0, 8)[0] * 255, digits(0, 8)[1])}, "between|range|255"),
        ({"train": (X * float("nan"), Y)}, "NaN|finite|between"),
        ({"eps": 8}, "8/255"), ({"eps": 0}, "objective=clean"), ({"eps": "x"}, "radius"), ({"eps": -0.1}, "radius"),
        ({"norm": "L3"}, "norm"), ({"recipe": "sturdy"}, "fast, safe, strong"), ({"model": nn.Flatten()}, "no weights"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_data_threat_or_model_that_cannot_be_used(given, words):
    refused(words, **given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attack": "pgd:step_size=0"}, "size 0"), ({"attack": "pdg"}, "pgd"), ({"attack": "ghost"}, "hooks"),
        ({"attack": "gama:steps=2"}, "scores of all classes"),
        ({"objective": "trade"}, "trades"), ({"prior": "lasso"}, "prior"), ({"select": "square"}, "loss"),
        ({"freeze": "*"}, "every weight"), ({"freeze": "prefix:layer9"}, "layer1"),
        ({"freeze": "0:conv1;5:none"}, "changes at epoch 5"), ({"fresh": "head", "prior": "l2sp:1"}, "head"),
        ({"bn": "split"}, "trades:6 or mart:5"), ({"attack": "free:4", "objective": "trades:6"}, "objective=at"),
        ({"attack": "free:4", "awp": 0.01}, "awp"), ({"batch": 1}, "larger batch"),
    ],
    ids=str,
)  # fmt: skip
def test_a_recipe_that_cannot_be_used(changes, words):
    refused(words, recipe=SHORT.but(**changes))


def test_an_attack_that_changes_no_image_is_refused():
    rounding = Wrapped(head(), before=lambda x: (x * 16).round())

    refused("changes none of the first images", model=rounding, recipe=SHORT.but(attack="fgsm"))


@pytest.mark.parametrize(
    ("error", "words"),
    [(AssertionError("Wrong height"), "1x8x8: Wrong height"), (AssertionError(), "1x8x8: AssertionError"),
     (IndexError("no such dimension.\nmore"), "1x8x8: no such dimension;"), (TypeError("bad"), "1x8x8: bad")],
)  # fmt: skip
def test_a_model_that_takes_no_such_images_is_refused_however_it_fails(error, words):
    def fail(x):
        raise error

    refused(words, model=Wrapped(head(), before=fail))


def test_a_model_in_half_precision_is_not_said_to_take_other_images():
    """The advice was to give a model that takes images of 1x8x8, which it does."""
    refused(r"weights are float16, and training is in float32; convert them: model\.float\(\)", model=net().half())


@pytest.mark.parametrize("objective", ["clean", "at", "trades:6"])
def test_a_model_whose_logits_are_nan_is_named_before_any_step(objective):
    model = Wrapped(net(), after=lambda logits: logits * float("nan"))

    refused("weights and normalisation", model=model, recipe=SHORT.but(objective=objective))


def test_for_a_model_whose_input_gradient_is_nan_the_advice_is_not_a_lower_lr():
    text = refused("before any training", model=Wrapped(net(), before=lambda x: x + (x * 0).sqrt().mean()))

    assert "lr" not in text


@pytest.mark.parametrize("attack", ["pgd:steps=2", "free:2"])
def test_weights_that_change_no_logit_are_refused(attack):
    model = head()
    model.register_module("spare", nn.Linear(3, 3))
    model.forward = lambda x: model[1](x.flatten(1))

    refused("no weight that learns", model=model, recipe=SHORT.but(freeze="all-but:spare", attack=attack))


def test_a_model_whose_every_weight_is_frozen_is_refused():
    refused("requires_grad=False", model=net().requires_grad_(False))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="another --out"):
        finetune(net(), TRAIN, VAL, eps=0.1, recipe=SHORT.but(epochs=1), out=tmp_path / "file")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"momentum": 0.0}, "[Nn]esterov"), ({"momentum": 1.0}, "momentum"), ({"lr": 0}, "lr"), ({"lr": -1.0}, "lr"),
        ({"lr": float("nan")}, "lr"), ({"lr": float("inf")}, "lr"), ({"lr": "high"}, "lr"), ({"lr": True}, "lr"),
        ({"lr": None}, "lr"), ({"clip": 0}, "clip"), ({"ema": 1.0}, "ema"), ({"epochs": 0}, "epochs"),
        ({"epochs": 2**40}, "epochs must be at most"),
        ({"epochs": 2.5}, "epochs"), ({"epochs": None}, "epochs"), ({"batch": "8"}, "batch"),
        ({"accumulate": 0}, "accumulate"), ({"patience": 0}, "patience"), ({"seed": -1}, "seed"),
        ({"warmup": 1.5}, "warmup"), ({"eps_warmup": -0.1}, "eps_warmup"), ({"label_smoothing": 1}, "label_smoothing"),
        ({"label_smoothing": None}, "label_smoothing"), ({"awp": -1}, "awp"), ({"nesterov": "yes"}, "nesterov"),
        ({"bf16": 1}, "bf16"), ({"attack": 7}, "attack"), ({"bn": "froze"}, "frozen"), ({"optimizer": "adam"}, "adamw"),
        ({"schedule": "cyclic"}, "schedule"), ({"attack_bn": "none"}, "attack_bn"), ({"epoch": 3}, "epochs"),
    ],
    ids=str,
)  # fmt: skip
def test_a_choice_out_of_range_is_named(changes, words):
    with pytest.raises(UserError, match=words):
        Recipe().but(**changes)


def test_momentum_may_be_zero_without_nesterov():
    assert Recipe(momentum=0.0, nesterov=False).momentum == 0
    assert Recipe(momentum=0.0, optimizer="adamw").nesterov


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_trained(name):
    assert inner_attack_of(PRESETS[name], "Linf", "8/255").attack.ball.eps == pytest.approx(8 / 255)


def test_the_same_image_scaled_in_another_way_is_the_same_image():
    x = torch.arange(192).reshape(3, 1, 8, 8).to(torch.uint8)
    y = torch.tensor([0, 1, 2])
    other = torch.cat([x[1:2].float() * torch.tensor(1 / 255), VAL[0][:3]])
    assert not torch.equal(other[0], from_tensors(x, y).batch([1])[0][0])

    with pytest.raises(UserError, match="1 validation images are training images"):
        checked_data(from_tensors(x, y), from_tensors(other, VAL[1][:4]), None)


def test_images_that_differ_by_one_grey_level_are_two():
    checked_data(from_tensors(X, Y), from_tensors((X - 1 / 255).clamp(0, 1), Y), None)


def test_labels_that_mean_other_classes_are_refused():
    train = from_tensors(*TRAIN, class_names=[f"digit {number}" for number in range(10)])
    shifted = from_tensors(*VAL, class_names=[f"digit {number + 1}" for number in range(10)])

    refused("class 0 is 'digit 0' in the training images but 'digit 1' in the validation", train=train, val=shifted)


@pytest.mark.parametrize("name", ["train", "val"])
def test_images_of_a_single_class_are_refused_and_are_not_called_a_collapse(name):
    x, y = {"train": TRAIN, "val": VAL}[name]

    refused(f"All {name}.* images are of class 3", **{name: (x[y == 3], y[y == 3])})


def test_a_last_class_without_images_is_accepted():
    x, y = VAL
    checked_data(from_tensors(*TRAIN), from_tensors(x[y < 9], y[y < 9]), None)


def test_a_classifier_that_rejects_is_not_trained_as_if_rejection_were_a_class():
    network = net()
    before = state(network)

    with pytest.raises(UserError, match="does not know rejections"):
        finetune(Classifier(network, rejects=True), TRAIN, VAL, eps=0.1, recipe=SHORT)
    assert changed(network, before) == set()
