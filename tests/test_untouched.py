"""Every function that takes a model restores the model, the images and torch's global state, also after an error."""

import importlib
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import numpy as np
import pytest
import torch
from robustkit.attacks import FIA, PGD, Square
from robustkit.defenses import Recipe, certify, explain, predict
from torch import Tensor, nn

import robustkit
from robustkit import Classifier, Smoothing, nethook
from robustkit.data import from_tensors
from robustkit.tracing import album
from tests.networks import Failing, Noisy, Rounding
from tests.problems import filled, images

pytestmark = pytest.mark.filterwarnings("ignore:.*exactly zero")  # behind the rounding of the network below

EPS = 0.05


class Network(nn.Module):
    """A convolution with BatchNorm, a residual branch, attention and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.rounding = Rounding(64)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.batch_norm, self.head = nn.BatchNorm1d(16), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(self.rounding(x)))).flatten(2).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.batch_norm(x).flatten(1))


class Case:
    """A network that is partly in train mode, partly frozen, with a gradient and a hook of the caller's; and images."""

    def __init__(
        self, wrap: Callable[[nn.Module], nn.Module] = lambda network: network, *, hooked: bool = True
    ) -> None:
        network, self.judge = Network(), filled(Network())
        self.x = images(6, 1, 8, 8).requires_grad_()
        self.model = filled(wrap(network))
        (self.relu,) = (name for name, module in self.model.named_modules() if module is network.relu)
        with torch.no_grad():
            self.y = self.model(self.x).argmax(1)
        self.model.train()
        network.norm.eval()
        network.conv.bias.requires_grad_(False)
        network.head.bias.grad = torch.ones(10)
        if hooked:
            network.head.register_forward_hook(lambda *_: None)

    def state(self) -> dict[str, object]:
        """All that the caller could find changed."""
        modules, weights = list(self.model.modules()), list(self.model.parameters())
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return {
            "modules": [id(module) for module in modules],
            "modes": [module.training for module in modules],
            "hooks": [len(getattr(module, kind)) for module in modules for kind in hooks],
            "attributes": [sorted(vars(module)) for module in modules],
            "tensors": [(name, id(value)) for name, value in _tensors(self.model)],
            "values": [value.tolist() for _, value in _tensors(self.model)],
            "flags": [weight.requires_grad for weight in weights],
            "gradients": [
                None if weight.grad is None else (id(weight.grad), weight.grad.tolist()) for weight in weights
            ],
            "tensor hooks": [bool(weight._backward_hooks) for weight in weights],
            "images": (self.x.tolist(), self.x.requires_grad, self.x.grad, self.y.tolist()),
            "torch": torch.get_rng_state().tolist(),
            "numpy": np.random.get_state()[1].tolist(),
            "python": random.getstate(),
            "modes of torch": (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cpu"),
            ),
            "settings of torch": (
                torch.get_default_dtype(),
                torch.get_num_threads(),
                torch.get_float32_matmul_precision(),
            ),
        }


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


FEW = Smoothing(0.1, n=20, n0=5)
RECIPE = Recipe(epochs=1, batch=3, select="pgd:steps=1")
ENTRIES: dict[str, Callable[[Case], object]] = {
    "attack": lambda case: robustkit.attack(case.model, case.x, case.y, PGD(EPS, steps=3)),
    "attack by queries": lambda case: robustkit.attack(case.model, case.x, case.y, Square(EPS, queries=4)),
    "attack through a surrogate gradient": lambda case: robustkit.attack(
        Classifier(case.model, bpda={"*rounding": None}), case.x, case.y, PGD(EPS, steps=3)
    ),
    "attack on a layer": lambda case: robustkit.attack(
        case.model, case.x, case.y, FIA(EPS, layer=case.relu, steps=1, ensemble=3)
    ),
    "attack a smoothed model": lambda case: robustkit.attack(
        Classifier(case.model, smoothing=FEW), case.x, case.y, PGD(EPS, "L2", steps=2)
    ),
    "evaluate": lambda case: robustkit.evaluate(
        case.model, dataset=(case.x.detach(), case.y), attacks=["fgsm", "noise:queries=2"], eps=EPS, checks="none"
    ),
    "evaluate with checks": lambda case: robustkit.evaluate(
        case.model, dataset=(case.x.detach(), case.y), attacks="fgsm", eps=EPS
    ),
    "evaluate a smoothed model": lambda case: robustkit.evaluate(
        case.model, dataset=(case.x.detach(), case.y), attacks="fgsm", norm="L2", eps=EPS, smooth=FEW, checks="none"
    ),
    "evaluate with a surrogate model": lambda case: robustkit.evaluate(
        case.judge, dataset=(case.x.detach(), case.y), attacks="fgsm", eps=EPS, surrogates=case.model, checks="none"
    ),
    "diagnose": lambda case: robustkit.diagnose(case.model, case.x, case.y, eps=5, norm="L0", layers=[case.relu]),
    "trace": lambda case: robustkit.trace(case.model, case.x, case.y, attack="fgsm", eps=EPS),
    "album": lambda case: album(case.model, robustkit.trace(case.model, case.x, case.y, attack="fgsm", eps=EPS)),
    "certify": lambda case: certify(case.model, case.x, sigma=0.1, n=20, n0=5, batch_size=30),
    "predict": lambda case: predict(case.model, case.x, sigma=0.1, n=40, batch_size=30),
    "explain": lambda case: explain(case.model, from_tensors(case.x.detach(), case.y), RECIPE, eps=EPS),
}  # fmt: skip
NO_GRADIENT = {"attack by queries", "certify", "predict"}
FAILURES = [
    pytest.param(entry, where, calls, marks=pytest.mark.slow) if calls == 1 else (entry, where, calls)
    for entry in ENTRIES
    for where in ("forward", "backward")
    for calls in ((0,) if where == "backward" and entry in NO_GRADIENT else (0, 1, 3))
    if entry != "evaluate with checks"  # it is `evaluate` until then
]
# What checks do to a randomized model, `diagnose` does; an album is made of a trace.
LONG = {"evaluate with checks", "album"}


def entries(long: set[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "entry", [pytest.param(entry, marks=pytest.mark.slow) if entry in long else entry for entry in ENTRIES]
    )


@pytest.mark.parametrize("hooked", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unhooked", "hooked"])
@entries(set())
def test_a_call_changes_nothing(entry, hooked):
    case = Case(hooked=hooked)
    before = case.state()
    ENTRIES[entry](case)

    assert case.state() == before


@pytest.mark.filterwarnings("ignore:.*is randomized")
@entries(LONG)
def test_a_call_with_a_randomized_model_changes_nothing(entry):
    case = Case(lambda network: Noisy(Noisy(Noisy(network, "torch"), "numpy"), "python"))
    before = case.state()
    with suppress(robustkit.UserError):  # a smoothed model must not be randomized
        ENTRIES[entry](case)

    assert case.state() == before


@pytest.mark.parametrize(("entry", "where", "calls"), FAILURES)
def test_a_call_that_fails_changes_nothing(entry, where, calls):
    case = Case(lambda network: Failing(network, where=where))
    case.model.fail_after(calls)
    before = case.state()
    if where == "backward" and entry in NO_GRADIENT:
        ENTRIES[entry](case)
    else:
        with pytest.raises(RuntimeError, match="on purpose"):
            ENTRIES[entry](case)

    assert case.state() == before


def same(value: Tensor, *, name: str, call: int) -> Tensor:
    return value


CONTEXTS: dict[str, Callable[[nn.Module], AbstractContextManager[object]]] = {
    "Trace": lambda model: nethook.Trace(model, ["*conv", "*head", nn.ReLU], input=True, grad=True, edit=same),
    "edit_grad": lambda model: nethook.edit_grad(model, ["*conv", "*relu"], same),
    "scale_grad": lambda model: nethook.scale_grad(model, "*norm", 0.5),
    "clamp_grad": lambda model: nethook.clamp_grad(model, "*norm", min=-1.0),
    "edit_output": lambda model: nethook.edit_output(model, "*conv", same),
    "bpda": lambda model: nethook.bpda(model, "*rounding"),
    "zero_grad_of": lambda model: nethook.zero_grad_of(model, "*.bias"),
    "restored": nethook.restored,
    "replaced": lambda model: nethook.replaced(model, {"model.relu": nn.ReLU()}),
    "expose_attention": nethook.expose_attention,
}


@pytest.mark.parametrize("fails", ["nowhere", "forward", "backward", "body"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_changes_nothing_once_it_is_left(context, fails):
    case = Case(lambda network: Failing(network, where=fails))
    case.model.eval()
    case.model.model.attention.train()
    case.model.fail_after(0 if fails in ("forward", "backward") else None)
    before = case.state()
    with nullcontext() if fails == "nowhere" else pytest.raises(RuntimeError, match="on purpose"):  # noqa: SIM117
        with CONTEXTS[context](case.model):
            free = [weight for weight in case.model.parameters() if weight.requires_grad]
            torch.autograd.grad(case.model(case.x).sum(), [case.x, *free])
            if fails == "body":
                raise RuntimeError("on purpose")

    assert case.state() == before


def test_the_first_import_of_rich_leaves_python_its_random_state(monkeypatch):
    """It draws a random number."""
    for name in [name for name in sys.modules if name == "robustkit.host" or name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(robustkit, "host", robustkit.host)
    before = random.getstate()
    importlib.import_module("robustkit.host")

    assert "rich.style" in sys.modules
    assert random.getstate() == before


FRESH = """
import random
import torch
before = random.getstate()
import robustkit

x, model = torch.rand(6, 1, 8, 8), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
print(robustkit.evaluate(model, dataset=(x, model(x).argmax(1)), attacks="fgsm", eps=0.1))
assert random.getstate() == before
"""


@pytest.mark.slow
def test_the_first_evaluation_of_a_process_leaves_python_its_random_state():
    subprocess.run([sys.executable, "-c", FRESH], check=True, capture_output=True)
