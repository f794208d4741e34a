"""Runs on models whose forward passes no gradient on: the run says so, and attacks can follow gradients through it."""

import pytest
import torch
from robustkit.attacks import APGD
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import BlackBox, Classifier, attack, load_dataset
from robustkit.checks.straight_through import RULE
from robustkit.classifier.gradient_stops import gradient_stops
from robustkit.errors import NoInputGradientError, UserError
from tests.diagnosis.nets import base as trained
from tests.networks import Changed, Noisy
from tests.small import Recorder, cnn, data, evaluated

EPS = "0.15"


class Retrieving(nn.Module):
    """Moves each image most of the way to its nearest training image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("images", load_dataset("digits", "train").batch(range(400))[0].flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        nearest = torch.cdist(x.flatten(1), self.images).argmin(1)
        return self.network(0.7 * self.images[nearest].view_as(x) + 0.3 * x)


class Voting(nn.Module):
    """Counts the votes of a network for an image and for two darker copies."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return sum(F.one_hot(self.network(x * light).argmax(1), 10) for light in (1.0, 0.9, 0.8)).float()


@pytest.fixture(scope="module")
def base():
    return trained()


def digits(count):
    return load_dataset("digits").batch(range(count))


def check_of(run):
    (check,) = (check for check in run.checks if check.name == "straight_through")
    return check


def worst(run) -> float:
    return run.results[run.results.role == "worst-case"].accuracy.iloc[0]


def test_a_search_inside_is_not_reported_as_robust_in_silence(base):
    """A layer that looks up the nearest training image left 68 % without a word; a smooth copy of it, 54 %."""
    given = {"dataset": digits(30), "attacks": "apgd-t:steps=20,targets=3", "eps": EPS}
    own = evaluated(Retrieving(base), None, **given)
    through = evaluated(Retrieving(base), None, **given, straight_through=True)

    assert worst(own) - worst(through) > 0.1
    assert check_of(own).status == "failed"
    assert "straight through argmin (test_straight_through.py, line " in check_of(own).finding
    assert "straight-through gradients" in own.results.note[own.results.role == "worst-case"].iloc[0]
    assert check_of(through).status == "not_applicable"
    assert through.manifest["identity"]["models"][0]["straight_through"] is True


def test_votes_are_attacked_through_their_counts(base):
    """500 queries of Square left 76 % of an ensemble of votes; gradients through its counts leave 17 %."""
    x, y = digits(24)
    with pytest.raises(NoInputGradientError, match="--straight-through"):
        attack(Voting(base), x, y, APGD(0.15, steps=20))
    through = attack(Classifier(Voting(base), straight_through=True), x, y, APGD(0.15, steps=20))
    searched = attack(Voting(base), x, y, "square:queries=300", eps=EPS)

    assert through.success.sum() > searched.success.sum() + 8


@pytest.mark.parametrize(("ensemble", "left"), [("rk-11", 4), ("rk-12", 1), ("rk-14", 1)])
def test_replaced_gradients_leave_no_image_out(base, ensemble, left):
    """Behind votes they led to the boundary and predicted that it is far: 20 of 100 images stood where 10 do."""
    x, y = digits(40)
    run = evaluated(Voting(base), None, dataset=(x, y), attacks=ensemble, eps=EPS, straight_through=True)

    last = run.samples[run.samples.attack == f"{ensemble}/square"]
    assert round(worst(run) * len(x)) == left
    assert (last.forwards > 0).sum() == (left if ensemble != "rk-11" else 0)


def test_a_branch_that_clean_images_do_not_take_is_not_reported_as_robust_in_silence(base):
    """A purifier behind a detector of attacks left 24 % without a word, where evading the detector leaves 1 %."""

    class Guarded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.purified = base, Retrieving(base)

        def forward(self, x: Tensor) -> Tensor:
            rough = (x[..., 1:] - x[..., :-1]).abs().mean((1, 2, 3)) > 0.32
            return self.purified(x) if bool(rough.any()) else self.network(x)

    stops = gradient_stops(Guarded(), Guarded(), digits(1)[0])
    assert [stop.op for stop in stops] == ["argmin"]
    assert gradient_stops(base, base, digits(1)[0]) == ()


def test_a_step_that_lies_outside_of_the_ball_by_rounding_is_not_taken():
    """0.2 as a float32 is 3e-9 more than 0.2: an attack in such sums broke 19 more of 100 digits behind `uint8`."""

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            whole = (x * 5).to(torch.uint8).float().flatten(1).mean(1)
            return torch.stack([torch.full_like(whole, 0.5), whole], 1)

    x, y = torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64)
    assert Counting()(x + torch.tensor(0.2)).argmax(1).tolist() == [1, 1]
    for eps, broken in (("0.2", False), ("0.2001", True)):
        result = attack(Classifier(Counting(), straight_through=True), x, y, "pgd:steps=5", eps=eps)
        assert result.success.tolist() == [broken] * 2


def test_an_honest_model_stops_no_gradient_and_costs_nothing_more():
    run = evaluated(cnn(), None, dataset=data(20), attacks="fgsm", eps="0.1")

    assert "gradient_stops" not in run.manifest
    assert (check_of(run).status, check_of(run).severity) == ("not_applicable", "invalidating")


def test_a_detach_that_hides_nothing_is_no_alarm(base):
    class Centred(nn.Module):
        def forward(self, logits: Tensor) -> Tensor:
            return logits - logits.amax(1, keepdim=True).detach()

    run = evaluated(nn.Sequential(base, Centred()), None, dataset=digits(20), attacks="default", eps="0.05")

    (stop,) = run.manifest["gradient_stops"]["sequential"]
    assert stop.startswith("detach (test_straight_through.py, line ")
    assert check_of(run).status == "ok"


def test_masked_gradients_behind_noise_are_not_reported_as_robust_in_silence(base, monkeypatch):
    """Nothing was measured on randomized models: noise before a detached branch left 25 % where it leaves 17 %."""

    def half_hidden(x: Tensor) -> Tensor:
        return torch.where(torch.arange(8) % 2 == 0, x, x.detach())

    monkeypatch.setattr("robustkit.checks.register.RULES", (RULE,))
    monkeypatch.setitem(RULE.probes[0].specification, "quick", "apgd:steps=10")
    model = Noisy(Changed(base, before=half_hidden), spread=0.02)
    run = evaluated(Classifier(model, eot=2, draws=64), None, dataset=digits(20), attacks="apgd:steps=3", eps="0.1")

    assert check_of(run).status == "failed"
    assert check_of(run).numbers["drawn"] == 12


def test_noise_alone_stops_no_gradient(monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", (RULE,))
    run = evaluated(Noisy(cnn(), spread=0.02), None, dataset=data(10), attacks="fgsm", eps="0.1", eot=2)

    assert check_of(run).status == "not_applicable"


def test_the_passes_are_made_once_and_an_interrupted_run_makes_the_rest(base, tmp_path, monkeypatch):
    for probe, few in zip(RULE.probes, ("apgd:steps=3", "apgd-t:steps=3,targets=2"), strict=True):
        monkeypatch.setitem(probe.specification, "quick", few)
    given = {"dataset": digits(30), "attacks": "apgd:steps=3", "eps": "0.05"}
    whole = evaluated(Retrieving(base), None, **given)
    with pytest.raises(KeyboardInterrupt):
        evaluated(Retrieving(base), tmp_path, **given, watch=Recorder(stop_after=70))
    again = evaluated(Retrieving(base), tmp_path, **given)

    assert check_of(again) == check_of(whole)
    assert check_of(again).numbers["drawn"] == 24
    watch = Recorder()
    evaluated(Retrieving(base), tmp_path, **given, watch=watch)
    assert watch.images == 0


@pytest.mark.parametrize("steps", ["apgd:steps=5", "pgd:steps=5"])
def test_no_batch_size_changes_what_passes_straight_through(steps, base):
    runs = [
        evaluated(
            Classifier(Retrieving(base), straight_through=True), None, dataset=digits(11), attacks=steps, eps=EPS,
            batch_size=size, checks="none",
        )
        for size in (1, 5, 64)
    ]  # fmt: skip

    assert runs[0].samples.equals(runs[1].samples)
    assert runs[0].samples.equals(runs[2].samples)


def test_a_black_box_has_no_gradients_that_could_pass_through():
    with pytest.raises(UserError, match="leave out bpda and straight_through"):
        Classifier(BlackBox(lambda images: images.reshape(len(images), -1)[:, :10]), straight_through=True)


class Keeping(nn.Module):
    """Keeps what it computed, detached."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        self.last = x.detach().round()
        return x.flatten(1) + self.last.flatten(1)


class Distinct(nn.Module):
    """Adds the sum of the distinct values, for which torch has no derivative."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + x.detach().unique().sum()).flatten(1)


def test_looking_for_stops_leaves_no_graph_in_the_model():
    model = Keeping()
    stops = gradient_stops(model, model, torch.rand(2, 1, 2, 2))

    assert {stop.op for stop in stops} == {"detach", "round"}
    assert not model.mean.requires_grad
    assert not model.last.requires_grad


def test_stops_that_no_gradient_passes_are_not_reported():
    assert gradient_stops(Distinct(), Distinct(), torch.rand(2, 1, 2, 2)) == ()
