"""Universal perturbations: the closed form on linear models, equal bits, and numbers that a bare loop repeats."""

from dataclasses import dataclass, replace

import pytest
import torch
from robustkit.attacks import AdversarialPatch, Universal
from torch import Tensor, nn

import robustkit
from robustkit import Classifier, UserError, fit_universal
from robustkit.engine.fit_universal import mini_batches
from robustkit.primitives.universal import UniversalAttack, UniversalState
from tests.networks import Noisy, Recording
from tests.small import cnn, data, linear

SHAPE = (3, 6, 6)


def two_classes(weights: Tensor) -> nn.Module:
    """Class 1 against class 0 by `weights`."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(weights.numel(), 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([torch.zeros_like(weights), weights]).flatten(1))
        model[1].bias.copy_(torch.tensor([0.0, -40.0]))  # all images are of class 0
    return model


def weights() -> Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(5))


def inner_images(count: int = 12) -> Tensor:
    """Images that no perturbation of 0.2 takes to the edge of the box."""
    return 0.3 + 0.4 * torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(6))


UNCLIPPED = {"clip": 1e6, "steps": 20, "batch": 4}


def test_in_linf_a_linear_model_of_two_classes_has_the_sign_of_the_weight_difference():
    fitted = fit_universal(two_classes(weights()), inner_images(), torch.zeros(12).long(), Universal(0.2, **UNCLIPPED))

    assert torch.equal(fitted.perturbation, 0.2 * weights().sign())


def test_in_l2_it_has_the_direction_of_the_weight_difference():
    fitted = fit_universal(
        two_classes(weights()), inner_images(), torch.zeros(12).long(), Universal(0.5, "L2", **UNCLIPPED)
    )

    assert torch.allclose(fitted.perturbation, 0.5 * weights() / weights().norm(), atol=1e-6)


def test_towards_a_target_it_has_the_same_sign():
    fitted = fit_universal(
        two_classes(weights()), inner_images(), torch.zeros(12).long(), Universal(0.2, **UNCLIPPED), target=1
    )

    assert torch.equal(fitted.perturbation, 0.2 * weights().sign())


def test_images_that_are_broken_beyond_the_clip_do_not_steer_the_rest():
    model = two_classes(torch.ones(SHAPE))
    with torch.no_grad():
        model[1].bias[1] = -54.0  # 0.5 everywhere is the boundary
    x = torch.full((2, *SHAPE), 0.49)
    y = torch.zeros(2).long()
    fitted = fit_universal(model, x, y, Universal(0.2, clip=0.69, steps=50, step_size=0.1, decay=0.0))

    assert fitted.judge(model, x, y).success.all()
    assert fitted.perturbation.max() < 0.05


@pytest.mark.parametrize(
    "attack",
    [
        Universal("0.1", steps=4, batch=10),
        Universal(1, "L2", steps=4, batch=10),  # with torch's own softplus in the loss the bits differ here
        AdversarialPatch(steps=3, batch=7, draws=3),
        AdversarialPatch(steps=3, batch=7, row=1, column=2, shape="square"),
    ],
    ids=["Linf", "L2", "patch", "fixed patch"],
)
def test_the_same_seed_gives_the_same_bits_in_any_number_of_rows_in_flight(attack):
    x, y = data(12)
    model = cnn()
    one = fit_universal(model, x, y, attack, seed=3)
    others = [fit_universal(model, x, y, attack, seed=3, batch_size=rows).perturbation for rows in (1, 5)]

    assert all(torch.equal(one.perturbation, other) for other in others)
    assert not torch.equal(one.perturbation, fit_universal(model, x, y, attack, seed=4).perturbation)


@pytest.mark.parametrize("attack", [Universal("8/255", steps=3), AdversarialPatch(steps=3, size=0.5)])
@pytest.mark.parametrize("target", [None, 3])
def test_the_judged_numbers_are_those_of_a_bare_loop(attack, target):
    x, y = data(30)
    model = linear()
    judged = fit_universal(model, x, y, attack, target=target).judge(model, x, y, places=3)
    fitted = fit_universal(model, x, y, attack, target=target)
    clean = model(x).argmax(1) == y
    attacked = clean if target is None else clean & (y != target)
    labels = [model(fitted.apply(x, place=place)).argmax(1) for place in range(judged.places)]
    wins = torch.stack([attacked & (each != y if target is None else each == target) for each in labels]).double()

    assert judged.clean_accuracy == clean.double().mean()
    assert judged.robust_accuracy == (clean & ~wins[0].bool()).double().mean()
    assert judged.attack_success_rate == pytest.approx(float(wins[0].sum() / attacked.sum()))
    assert judged.placed_success_rate == pytest.approx(float(wins.mean(0).sum() / attacked.sum()))
    assert torch.equal(judged.prediction, labels[0])


@pytest.mark.parametrize(("norm", "eps"), [("Linf", "8/255"), ("L2", "0.7")])
@pytest.mark.parametrize(("bounds", "dtype"), [((0.0, 1.0), torch.float32), ((-1.0, 1.0), torch.float64)])
def test_judged_images_lie_in_the_ball_of_the_caller_s_units(norm, eps, bounds, dtype):
    x, y = data(20)
    low, high = bounds
    x = (low + (high - low) * x).to(dtype)
    model = linear().to(dtype)
    fitted = fit_universal(model, x, y, Universal(eps, norm, steps=3), bounds=bounds)
    x_adv = fitted.apply(x)
    change = (x_adv.double() - x.double()).flatten(1) / (high - low)
    size = change.abs().amax(1) if norm == "Linf" else change.norm(dim=1)

    assert x_adv.dtype == dtype
    assert (size <= fitted.attack.ball.eps).all()
    assert x_adv.min() >= low
    assert x_adv.max() <= high
    assert (fitted.judge(model, x, y).prediction == model(x_adv).argmax(1)).all()


@pytest.mark.parametrize("target", [-1, 2])
def test_cross_entropy_has_its_textbook_value_and_does_not_saturate(target):
    logits = torch.tensor([[1.0, 0.5, -2.0], [40.0, 0.0, 1.0]], requires_grad=True)
    y, aim = torch.zeros(2).long(), torch.full((2,), target)
    value = Universal(0.1, clip=1e6).objective(logits, y, aim)
    textbook = nn.functional.cross_entropy(logits, y if target < 0 else aim, reduction="none")
    (grad,) = torch.autograd.grad(value.sum(), logits)

    assert torch.allclose(value, textbook if target < 0 else -textbook)
    assert (grad.abs().amax(1) > 0).all()


def test_each_pass_over_the_images_takes_every_image_once():
    batches = mini_batches(0, range(10, 18), 4)
    first, second = (next(batches) + next(batches) for _ in range(2))

    assert sorted(first) == sorted(second) == list(range(10, 18))
    assert first != second


def test_images_that_are_wrong_before_or_of_the_target_class_are_not_fitted_to():
    x, y = data(30)
    model = linear()
    fitted = fit_universal(model, x, y, Universal(0.1, steps=1), target=3)
    expected = ((model(x).argmax(1) == y) & (y != 3)).nonzero().flatten()

    assert torch.equal(fitted.fitted, expected)


def test_the_model_sees_as_many_rows_as_are_counted():
    x, y = data(20)
    network = linear()
    counted = [fit_universal(network, x, y, AdversarialPatch(steps=steps, batch=5, draws=2)) for steps in (1, 4)]

    assert counted[0].forwards == 20 + 10
    assert counted[1].forwards - counted[0].forwards == 30
    assert counted[1].backwards == 40


def test_the_model_comes_back_as_it_was():
    x, y = data(20)
    model = cnn().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    fit_universal(model, x, y, Universal(0.1, steps=2)).judge(model, x, y)

    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(random_state, torch.get_rng_state())


def test_a_randomized_model_repeats_its_fit():
    x, y = data(8)
    model = robustkit.Classifier(Noisy(linear(), spread=0.05), eot=2, draws=64)
    with pytest.warns(UserWarning, match="randomized"):
        one, other = (fit_universal(model, x, y, Universal(0.1, steps=2, batch=4)).perturbation for _ in range(2))

    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("attack", "more", "words"),
    [
        ("universal", {}, "needs a radius"),
        ("universal:stpes=3", {"eps": 0.1}, "stpes"),
        ("universal:steps=0", {"eps": 0.1}, "steps must be a whole number of at least 1"),
        ("universal", {"eps": 0.1, "norm": "L1"}, "Linf, L2"),
        ("universal", {"eps": "minimum"}, "needs a radius"),
        ("adversarial_patch", {"eps": 0.1}, "has no radius"),
        ("adversarial_patch:row=7,column=7", {}, "does not fit"),
        ("adversarial_patch:row=1", {}, "belong together"),
        ("adversarial_patch:size=0", {}, "smallest"),
        ("adversarial_patch:shape=star", {}, "circle or square"),
        ("pgd", {"eps": 0.1}, "robustkit evaluate"),
        ("univresal", {"eps": 0.1}, "did you mean universal"),
        ("universal", {"eps": 0.1, "target": 10}, "not a class"),
    ],
)
def test_what_cannot_be_fitted_is_one_sentence(attack, more, words):
    with pytest.raises(UserError, match=words):
        fit_universal(linear(), *data(4), attack, **more)


def test_a_universal_attack_is_no_attack_on_single_images():
    with pytest.raises(UserError, match="robustkit universal"):
        robustkit.attack(linear(), *data(4), "universal", eps=0.1)


def test_images_of_another_size_are_refused():
    fitted = fit_universal(linear(), *data(4), Universal(0.1, steps=1))

    with pytest.raises(UserError, match="resize"):
        fitted.apply(torch.rand(2, 1, 9, 9))


def test_an_unknown_judge_gets_the_very_tensor_that_apply_returns():
    x, y = data(10)
    recording = Recording(linear())
    fitted = fit_universal(linear(), x, y, Universal(0.1, steps=1))
    fitted.judge(recording, x, y)

    assert any(torch.equal(seen[: len(x)], fitted.apply(x)) for seen in recording.inputs)
    assert replace(fitted, seed=9).apply(x).equal(fitted.apply(x))


def test_with_images_of_the_target_alone_the_model_was_said_to_classify_none_correctly():
    model, (x, _) = linear(), data(20)
    predicted = model(x).argmax(1)
    target = int(predicted[0])
    alone = predicted == target

    with pytest.raises(UserError, match=f"other classes than the target, {target}, correctly"):
        fit_universal(model, x[alone], predicted[alone], Universal(0.2), target=target)


class KilledError(Exception):
    """Stands for the end of a process in the middle of a fit."""


def test_a_fit_that_is_killed_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("robustkit.engine.fit_checkpoint._SECONDS", 0.0)
    model, (x, y), file = linear(), data(20), tmp_path / "fit.safetensors"
    method = Universal(0.2, steps=9, batch=4)
    whole = fit_universal(model, x, y, method)
    steps = []

    def step(self, state, grad, original=Universal.step):
        steps.append(state.steps)
        if len(steps) == 6:
            raise KilledError
        return original(self, state, grad)

    monkeypatch.setattr(Universal, "step", step)
    with pytest.raises(KilledError):
        fit_universal(model, x, y, method, checkpoint=file)
    fitted = fit_universal(model, x, y, method, checkpoint=file)

    assert torch.equal(fitted.perturbation, whole.perturbation)
    assert steps == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8]
    assert (fitted.forwards, fitted.backwards) == (whole.forwards, whole.backwards)
    assert not file.exists()


@pytest.mark.parametrize("change", ["seed", "images", "weights", "steps"])
def test_the_checkpoint_of_another_fit_is_refused(tmp_path, monkeypatch, change):
    monkeypatch.setattr("robustkit.engine.fit_checkpoint._SECONDS", 0.0)
    monkeypatch.setattr("robustkit.engine.fit_checkpoint.FitCheckpoint.remove", lambda self: None)
    model, (x, y), file = linear(), data(20), tmp_path / "fit.safetensors"
    fit_universal(model, x, y, Universal(0.2, steps=2, batch=4), checkpoint=file)
    if change == "images":
        x = x.flip(3)
    if change == "weights":
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1e-6
    method = Universal(0.2, steps=3 if change == "steps" else 2, batch=4)

    with pytest.raises(UserError, match="checkpoint of another fit"):
        fit_universal(model, x, y, method, checkpoint=file, seed=int(change == "seed"))


@pytest.mark.parametrize("changes", [{"bpda": {"1": lambda z: 2 * z}}, {"straight_through": True}], ids=["bpda", "st"])
def test_a_checkpoint_made_with_other_gradients_was_continued(tmp_path, changes):
    model, (x, y), file = linear(), data(20), tmp_path / "fit.safetensors"
    model = nn.Sequential(nn.Identity(), nn.Identity(), model)
    before, after = Classifier(model, bpda={"1": None}), Classifier(model, **{"bpda": {"1": None}, **changes})
    fit_universal(before, x, y, Universal(0.2, steps=2, batch=4), checkpoint=file, keep_checkpoint=True)

    with pytest.raises(UserError, match="checkpoint of another fit"):
        fit_universal(after, x, y, Universal(0.2, steps=2, batch=4), checkpoint=file, keep_checkpoint=True)


def test_a_checkpoint_was_continued_after_an_edit_of_the_attack(tmp_path):
    def made(share: float) -> UniversalAttack:
        @dataclass(frozen=True)
        class Mine(Universal):
            def step(self, state: UniversalState, grad: Tensor) -> UniversalState:
                return super().step(state, share * grad)

        return Mine(0.2, steps=2, batch=4)

    model, (x, y), file = linear(), data(20), tmp_path / "fit.safetensors"
    fit_universal(model, x, y, made(1.0), checkpoint=file, keep_checkpoint=True)

    with pytest.raises(UserError, match="checkpoint of another fit"):
        fit_universal(model, x, y, made(-1.0), checkpoint=file, keep_checkpoint=True)


class Scaled(nn.Module):
    """A network that reads a number which no hash of weights, settings and code covers."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale, self.network = scale, cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self._scale * x)


def test_a_checkpoint_of_a_network_with_another_private_value_was_continued(tmp_path):
    (x, y), file, method = data(20), tmp_path / "fit.safetensors", Universal(0.2, steps=2, batch=4)
    fit_universal(Scaled(1.0), x, y, method, checkpoint=file, keep_checkpoint=True)
    fit_universal(Scaled(1.0), x, y, method, checkpoint=file, keep_checkpoint=True)

    with pytest.raises(UserError, match="checkpoint of another fit"):
        fit_universal(Scaled(0.8), x, y, method, checkpoint=file, keep_checkpoint=True)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "fit.safetensors").write_bytes(b"nothing")

    with pytest.raises(UserError, match="not a checkpoint of a fit"):
        fit_universal(linear(), *data(20), Universal(0.2, steps=1), checkpoint=tmp_path / "fit.safetensors")
