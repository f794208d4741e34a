"""Losses of the user: a function of logits and classes, or one in a file, wherever `loss=` is accepted."""

import copy
import sys
from functools import partial

import pytest
import torch
from robustkit.attacks import APGD, FGSM, ILA, PGD, Universal
from torch import Tensor, nn

import robustkit
from robustkit import Classifier, UserError, evaluate
from robustkit.primitives import losses, registry
from tests.small import cnn, data, linear

FILE = """
from torch.nn import functional as F

def ce(logits, y):
    return F.cross_entropy(logits, y, reduction="none")

def mean(logits, y):
    return F.cross_entropy(logits, y)

def detached(logits, y):
    return ce(logits.detach(), y)

def wrong(logits, y):
    return logits[:, y.item()]
"""


def ce(logits: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, y, reduction="none")


@pytest.fixture(autouse=True)
def _file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text(FILE)


# Each form of a loss, each attack that does something of its own with one, and targets: not all with all.
OWN = {"function": ce, "file": "lib/mine.py:ce", "module": nn.CrossEntropyLoss(reduction="none")}


@pytest.mark.parametrize(
    ("attack", "form", "targets"),
    [(partial(PGD, steps=3), form, targets) for form in OWN for targets in (0, 2)]
    + [(attack, "function", targets) for attack in (partial(APGD, steps=10), FGSM, ILA) for targets in (0, 2)],
)
def test_an_own_copy_of_cross_entropy_gives_the_bits_of_ours(attack, form, targets):
    (x, y), loss = data(12), OWN[form]
    own, ours = (robustkit.attack(cnn(), x, y, attack(eps="0.1", loss=each, targets=targets)) for each in (loss, "ce"))

    assert torch.equal(own.x_adv, ours.x_adv)


def test_a_loss_in_a_file_is_one_column_with_a_name_of_its_own():
    run = evaluate(linear(), dataset=data(8), eps="0.1", attacks=["pgd:steps=2,loss=lib/mine.py:ce", "fgsm"])

    assert run.results.attack.tolist() == ["clean", "pgd:steps=2,loss=mine.ce", "fgsm", "worst-case"]
    assert set(run.results.role) == {"clean", "attack", "worst-case"}


def test_a_loss_whose_file_changed_is_another_attack(tmp_path):
    asked = {"dataset": data(8), "eps": "0.1", "attacks": "pgd:steps=2,loss=lib/mine.py:ce", "out": tmp_path / "run"}
    evaluate(linear(), **asked)
    (tmp_path / "lib" / "mine.py").write_text(FILE.replace("return F.cross", "return 2 * F.cross"))

    with pytest.raises(UserError, match="code changed"):
        evaluate(linear(), **asked)


def scaled(factor: float):
    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return factor * ce(logits, y)

    return loss


def test_functions_that_close_over_other_values_are_other_losses():
    one, same, other = (registry.described(PGD(0.1, loss=scaled(factor))) for factor in (1.0, 1.0, 2.0))

    assert one == same
    assert one != other
    assert "loss" in registry.spelled(PGD(0.1, loss=scaled(1.0)))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("lib/mine.py:mean", "one number per image"),
        ("lib/mine.py:detached", "autograd"),
        ("lib/mine.py:wrong", "wrong fails"),
        ("lib/mine.py:none", "no function 'none'"),
        ("lib/gone.py:ce", "no file"),
        (nn.CrossEntropyLoss(), "one number per image"),
        (lambda logits, y: 3, "a tensor"),
        (7, "no loss called '7'"),
        (lambda logits, y: ce(logits.detach().requires_grad_(), y), "autograd"),
        (lambda logits, y: (0 * ce(logits, y)).sqrt(), "gradient of the loss <lambda> is not finite"),
        (lambda logits, y: logits.argmax(1) != y, "count no errors"),
        (lambda logits, y: ce(logits, y)[:, None], "squeeze"),
        (lambda logits, y: sys.exit(0), "SystemExit"),
    ],
    ids=["mean", "detached", "failing", "no function", "no file", "mean of a module", "no tensor", "a number",
         "leaf of its own", "gradient", "errors", "column", "exit"],
)  # fmt: skip
def test_a_loss_that_cannot_be_climbed_is_refused_in_one_line(loss, words):
    with pytest.raises(UserError, match=words) as error:
        robustkit.attack(linear(), *data(4), PGD(eps="0.1", loss=loss))

    assert "\n" not in str(error.value)


def zeroed_classes(logits, y):
    return ce(logits, y.zero_())


def doubled_logits(logits, y):
    return logits.mul_(2)[:, 0]


def doubled_data(logits, y):
    logits.data.mul_(2)
    return ce(logits, y)


def zeroed_in_numpy(logits, y):
    y.numpy()[:] = 0
    return ce(logits, y)


WRITING = [
    (zeroed_classes, "classes"),
    (doubled_logits, "logits"),
    (doubled_data, "logits"),
    (zeroed_in_numpy, "classes"),
]


# 64 rows are given as they are; fewer are filled up in a copy.
@pytest.mark.parametrize("count", [12, 64])
@pytest.mark.parametrize(("loss", "written"), WRITING)
def test_a_loss_that_writes_into_what_it_was_given_is_refused(loss, written, count):
    with pytest.raises(UserError, match=f"{loss.__name__} writes into the {written}"):
        robustkit.attack(linear(), *data(count), PGD(eps="0.1", loss=loss))


@torch.inference_mode()
def test_a_loss_may_be_asked_in_inference_mode():
    logits, y = torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)

    assert torch.equal(losses.loss(ce)(logits, y, torch.full_like(y, -1)), ce(logits, y))


def test_a_loss_may_be_asked_under_vmap_and_grad():
    logits, y = torch.randn(5, 2, 4), torch.zeros(2, dtype=torch.int64)
    asked = losses.loss(ce).untargeted
    summed = partial(lambda loss, one: loss(one, y).sum(), asked), partial(lambda loss, one: loss(one, y).sum(), ce)
    own, plain = (torch.func.vmap(torch.func.grad(each))(logits) for each in summed)

    assert torch.allclose(own, plain)


def centred(logits, y):
    return ce(logits - logits.mean(0), y)


def noisy(logits, y):
    return ce(logits, y) + torch.rand(len(y)) * logits[:, 0]


def said_of(loss, model, attack=PGD, count=12):
    return evaluate(model, dataset=data(count), attacks=attack(eps=0.03, steps=3, loss=loss)).manifest["warnings"]


def shrinking(logits, y):
    return -ce(logits, y)


# A model whose batch sizes were not compared before: a loss must not be taken for its rounding.
@pytest.mark.parametrize("attack", [PGD, partial(ILA, guide_steps=2)])
@pytest.mark.parametrize(
    ("loss", "cause"),
    [
        (centred, "centred gives an image another value when other images are beside it"),
        (noisy, "noisy returns other values for the same logits"),
        (shrinking, "shrinking is smaller where the logit of the given class is lowered"),
    ],
)
def test_a_run_says_what_is_wrong_with_the_loss_and_does_not_blame_the_model(attack, loss, cause):
    (said,) = said_of(loss, copy.deepcopy(cnn()), attack)

    assert said.startswith(f"The loss {cause}")


def test_worker_processes_say_what_is_wrong_with_the_loss():
    request = {"dataset": data(60), "attacks": PGD(eps=0.03, steps=3, loss=shrinking), "workers": 1}

    (said,) = evaluate(linear(), **request).manifest["warnings"]

    assert said.startswith("The loss shrinking is smaller")


@pytest.mark.parametrize("loss", [ce, nn.CrossEntropyLoss(reduction="none"), scaled(2.0)], ids=["ce", "module", "2 ce"])
def test_a_loss_that_reads_one_image_is_not_suspected(loss):
    assert said_of(loss, copy.deepcopy(cnn())) == []


def test_no_later_run_of_a_model_is_warned_about_a_loss_of_an_earlier_one():
    model = copy.deepcopy(cnn())
    said_of(noisy, model)

    assert said_of(ce, model) == []


@pytest.mark.parametrize("attack", [PGD(eps="0.1", steps=2, loss=centred), Universal(eps="0.1", steps=2, loss=centred)])
def test_python_warns_of_a_loss_that_reads_other_images_too(attack):
    run = robustkit.fit_universal if isinstance(attack, Universal) else robustkit.attack
    with pytest.warns(UserWarning, match="The loss centred gives an image another value"):
        run(linear(), *data(8), attack)


def test_under_masks_the_loss_is_blamed_and_not_the_model():
    model, masks = copy.deepcopy(cnn()), torch.arange(128).reshape(2, 1, 8, 8) < 96
    with pytest.warns(UserWarning, match="The loss noisy"):
        robustkit.attack(model, *data(2), PGD(eps="0.1", steps=2, loss=noisy), mask=masks)

    with Classifier(model).session(data(2)[0]) as session:
        assert session.sizes.layouts
        assert session.sizes.note is None


def test_a_gradient_that_is_not_finite_in_a_later_step_is_blamed_on_the_loss_too():
    calls = []

    def overflowing(logits, y):
        calls.append(1)
        return ce(logits, y) * (torch.inf if len(calls) > 8 else 1)

    with pytest.raises(UserError, match="correct your loss"):
        robustkit.attack(linear(), *data(12), PGD(eps="0.01", loss=overflowing))


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("ce", "margin", "logit")]


@pytest.mark.parametrize("name", ["log-odds", "dlr", "softmax-margin", *OTHERS])
def test_the_sign_of_a_known_loss_is_not_suspected(name):
    def own(logits, y):
        return losses.LOSSES[name].untargeted(logits, y)

    said = said_of(own, cnn()) + said_of(own, cnn(), partial(PGD, targets=2))

    assert not [text for text in said if "The loss own" in text]
