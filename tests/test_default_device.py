"""Another default device or precision of the caller's changes nothing.

The device "meta" has no values, so what lands there cannot be used.
"""

import pytest
import torch
from robustkit.defenses import Recipe, finetune
from torch import nn
from torch.utils.data import TensorDataset

import robustkit
from robustkit import Classifier, Smoothing, attack, diagnose, evaluate, fit_universal, load_model, trace
from tests.networks import Changed, Rounding
from tests.problems import digits


@pytest.fixture
def made():
    trained = digits()
    model, x, y = trained.model, trained.x[:24], trained.y[:24]
    torch.set_default_device("meta")
    try:
        yield model, x, y
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(("norm", "eps", "checks"), [("Linf", 0.1, "full"), ("L2", 0.5, "none"), ("L1", 4, "none")])
def test_an_evaluation(made, norm, eps, checks):
    model, x, y = made
    asked = {"dataset": TensorDataset(x[:2], y[:2]), "norm": norm, "eps": eps, "samples": None, "device": "cpu"}
    run = evaluate(model, checks=checks, **asked)
    torch.set_default_device(None)

    assert run.samples.equals(evaluate(model, checks="none", **asked).samples)


@pytest.mark.parametrize(
    "method", ["square:queries=20", "fab:steps=9", "pgd:restarts=2", "hopskipjump:queries=60", "vfga"]
)
def test_an_attack(made, method):
    norm = "L0" if method == "vfga" else "L2"
    eps = 5 if method == "vfga" else 0.5

    assert attack(*made, method, eps=eps, norm=norm).x_adv.device.type == "cpu"


def test_a_smoothed_model(made):
    model, x, y = made
    run = evaluate(
        Classifier(model, smoothing=Smoothing(0.1, n=200)), dataset=TensorDataset(x, y), attacks="pgd:steps=2",
        norm="L2", eps=0.2, samples=8, device="cpu",
    )  # fmt: skip

    assert len(run.results)


def test_a_diagnosis_a_trace_and_a_universal_perturbation(made):
    model, x, y = made

    assert diagnose(Changed(model, before=Rounding(4)), x, y, eps=0.1).verdict
    assert trace(model, x, y, eps=0.1).calls
    assert fit_universal(model, x, y, "universal:steps=3", eps=0.2).perturbation.device.type == "cpu"


def test_a_model_is_loaded_after_the_default_device_was_reset():
    # torch 2.6 does not name its default device then.
    torch.set_default_device(None)

    assert next(load_model("resnet18", dataset="digits", random_init=True).parameters()).device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_another_default_precision_rounds_nothing(dtype):
    # float16 rounded the weights of a model by name: 75 % robust in place of 83 %.
    trained = digits()
    usual = load_model("resnet18", dataset="digits", random_init=True).state_dict()
    torch.set_default_dtype(dtype)
    try:
        weights = load_model("resnet18", dataset="digits", random_init=True).state_dict()
        shared = fit_universal(trained.model, trained.x[:16], trained.y[:16], "universal:steps=3", eps=0.1)
    finally:
        torch.set_default_dtype(torch.float32)

    assert all(torch.equal(weights[name], value) for name, value in usual.items())
    assert shared.perturbation.dtype == torch.float32
    assert shared.perturbation.abs().max() <= 0.1


def test_a_training_and_a_model_by_name(made):
    torch.set_default_device(None)
    fresh = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    _, x, y = made
    torch.set_default_device("meta")
    finetune(fresh, (x[:16], y[:16]), (x[16:], y[16:]), eps=0.1, recipe=Recipe(epochs=1, objective="trades:6"))
    named = load_model("resnet18", dataset="digits", random_init=True)

    assert {weight.device.type for net in (fresh, named) for weight in net.parameters()} == {"cpu"}
    assert len(robustkit.corruptions(named, dataset="digits", samples=1, severities=5, device="cpu").results)
