"""What cannot be done as asked is one sentence that names the fix, before anything is changed or written."""

import pytest
import torch
from robustkit.defenses import PRESETS, Recipe, finetune
from robustkit.defenses.training.checks import checked_data
from torch import nn

from robustkit.data import from_tensors
from robustkit.errors import UserError
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, digits, net, state


def refused(words, *, recipe=SHORT, train=TRAIN, val=VAL, eps=0.1, norm="Linf", model=None, **more):
    network = net() if model is None else model
    before = state(network)
    with pytest.raises(UserError, match=words) as caught:
        finetune(network, train, val, eps=eps, norm=norm, recipe=recipe, **more)

    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert changed(network, before) == set()
    assert all(weight.requires_grad for weight in network.parameters())


X, Y = TRAIN


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"val": (X[:0], Y[:0])}, "validation|empty|no "),
        ({"val": (X[:5], Y[:5])}, "5 validation images are training images too"),
        ({"test": (X[7:9], Y[7:9])}, "2 test images are training images too"),
        ({"test": (VAL[0][:3], VAL[1][:3])}, "3 test images are validation images too"),
        ({"train": (X[:1], Y[:1])}, "one training image"),
        ({"train": (X, Y + 5)}, "classes 0 to 14, but the model has 10 outputs"),
        ({"val": (VAL[0], VAL[1] + 7)}, "classes 0 to 16"),
        ({"train": (X.expand(-1, 3, -1, -1), Y), "val": (VAL[0].expand(-1, 3, -1, -1), VAL[1])}, "1x8x8|3x8x8"),
        ({"val": (VAL[0].expand(-1, 3, -1, -1), VAL[1])}, "images of 3x8x8"),
        ({"eps": 8}, "8/255"),
        ({"eps": 0}, "objective=clean"),
        ({"eps": "x"}, "radius"),
        ({"eps": -0.1}, "radius"),
        ({"norm": "L3"}, "norm"),
        ({"recipe": "sturdy"}, "fast, safe, strong"),
        ({"recipe": SHORT.but(attack="pgd:step_size=0")}, "size 0"),
        ({"recipe": SHORT.but(attack="pdg")}, "pgd"),
        ({"recipe": SHORT.but(attack="ghost")}, "hooks"),
        ({"recipe": SHORT.but(objective="trade")}, "trades"),
        ({"recipe": SHORT.but(prior="lasso")}, "prior"),
        ({"recipe": SHORT.but(freeze="*")}, "every weight"),
        ({"recipe": SHORT.but(freeze="prefix:layer9")}, "layer1"),
        ({"recipe": SHORT.but(freeze="0:conv1;5:none")}, "changes at epoch 5"),
        ({"recipe": SHORT.but(fresh="head", prior="l2sp:1")}, "head"),
        ({"recipe": SHORT.but(select="square")}, "loss"),
        ({"recipe": SHORT.but(bn="split")}, "trades:6 or mart:5"),
        ({"recipe": SHORT.but(attack="free:4", objective="trades:6")}, "objective=at"),
        ({"recipe": SHORT.but(attack="free:4", awp=0.01)}, "awp"),
        ({"recipe": SHORT.but(batch=1)}, "larger batch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_input_that_cannot_be(given, words):
    refused(words, **given)


class Blind(nn.Module):
    """Has a gradient of zero in its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer((x * 16).round().flatten(1))


def test_an_attack_that_changes_no_image_is_refused():
    refused("changes none of the first images", model=Blind(), recipe=SHORT.but(attack="fgsm"))


class Failing(nn.Module):
    """Takes no image, each time in a way of its own."""

    def __init__(self, error):
        super().__init__()
        self.layer, self.error = nn.Linear(64, 10), error

    def forward(self, x):
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [(AssertionError("Wrong height"), "1x8x8: Wrong height"), (AssertionError(), "1x8x8: AssertionError"),
     (IndexError("no such dimension.\nmore"), "1x8x8: no such dimension;"), (TypeError("bad"), "1x8x8: bad")],
)  # fmt: skip
def test_a_model_that_takes_no_such_images_is_refused_however_it_fails(error, words):
    refused(words, model=Failing(error))


class Undefined(nn.Module):
    """Answers no number, or has no gradient that is one, from the beginning."""

    def __init__(self, *, forwards):
        super().__init__()
        self.inner, self.forwards = net(), forwards

    def forward(self, x):
        return self.inner(x) * float("nan") if self.forwards else self.inner(x) + (x * 0).sqrt().mean()


@pytest.mark.parametrize("objective", ["clean", "at", "trades:6"])
def test_a_model_that_answers_no_numbers_is_named_before_any_step(objective):
    refused("weights and normalisation", model=Undefined(forwards=True), recipe=SHORT.but(objective=objective))


def test_a_model_without_an_input_gradient_is_not_told_to_lower_lr():
    with pytest.raises(UserError, match="before any training") as caught:
        finetune(Undefined(forwards=False), TRAIN, VAL, eps=0.1, recipe=SHORT)

    assert "lr" not in str(caught.value)


def test_a_model_without_weights_is_refused():
    refused("no weights", model=nn.Flatten())


class Detached(nn.Module):
    """Has a layer that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.layer, self.spare = nn.Linear(64, 10), nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("attack", ["pgd:steps=2", "free:2"])
def test_weights_that_change_no_logit_are_refused(attack):
    refused("no weight that learns", model=Detached(), recipe=SHORT.but(freeze="all-but:spare", attack=attack))


def test_a_model_whose_every_weight_stays_is_refused():
    network = net().requires_grad_(False)
    with pytest.raises(UserError, match="requires_grad=False"):
        finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT)


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


def test_heavy_ball_may_have_no_momentum():
    assert Recipe(momentum=0.0, nesterov=False).momentum == 0
    assert Recipe(momentum=0.0, optimizer="adamw").nesterov


def test_presets_are_recipes_that_can_be_trained():
    from robustkit.defenses.training.finetuning import inner_of

    for recipe in PRESETS.values():
        assert inner_of(recipe, "Linf", "8/255").attack.ball.eps == pytest.approx(8 / 255)


def test_the_same_image_scaled_in_another_way_is_the_same_image():
    x = torch.arange(192).reshape(3, 1, 8, 8).to(torch.uint8)
    y = torch.tensor([0, 1, 2])
    other = torch.cat([x[1:2].float() * torch.tensor(1 / 255), VAL[0][:3]])
    assert not torch.equal(other[0], from_tensors(x, y).batch([1])[0][0])

    with pytest.raises(UserError, match="1 validation images are training images"):
        checked_data(from_tensors(x, y), from_tensors(other, VAL[1][:4]), None)


def test_images_that_differ_by_one_grey_level_are_two():
    x, y = TRAIN
    checked_data(from_tensors(x, y), from_tensors((x - 1 / 255).clamp(0, 1), y), None)


def test_labels_that_mean_other_classes_are_refused():
    train = from_tensors(*TRAIN, class_names=[f"digit {number}" for number in range(10)])
    shifted = from_tensors(*VAL, class_names=[f"digit {number + 1}" for number in range(10)])
    refused("class 0 is 'digit 0' in the training images but 'digit 1' in the validation", train=train, val=shifted)


def test_a_class_without_images_at_the_end_is_no_other_class():
    x, y = VAL
    checked_data(from_tensors(*TRAIN), from_tensors(x[y < 9], y[y < 9]), None)


def test_images_that_are_no_tensors_of_images_are_named():
    with pytest.raises(UserError):
        finetune(net(), (digits(0, 8)[0] * 255, digits(0, 8)[1]), VAL, eps=0.1, recipe=SHORT)
    with pytest.raises(UserError):
        finetune(net(), (torch.full_like(X, float("nan")), Y), VAL, eps=0.1, recipe=SHORT)
