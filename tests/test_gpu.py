"""What only a GPU can show."""

import copy
import warnings

import pytest
import torch
from robustkit.attacks import APGD, PGD, Square
from torch import nn
from torch.utils.data import TensorDataset

from robustkit import attack, evaluate
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Plain
from robustkit.classifier.smoothing import Smoothing
from robustkit.engine.jobs import Job
from robustkit.engine.scheduler import run
from robustkit.primitives.registry import classes
from tests.compiling import compiles
from tests.networks import Changed, Noisy
from tests.problems import digits, filled, problem
from tests.test_contract import subject, threats

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
ATTACKS = [PGD(0.1, steps=10, restarts=2), APGD(0.1, steps=10), Square(0.1, queries=50)]
NEAR = 2  # of 100 images, whose verdict rounding may change


def ended(made, attack, device, slots=64):
    model = made.model.to(device)
    try:
        jobs = [Job(number, x.to(device), int(y)) for number, (x, y) in enumerate(zip(made.x, made.y, strict=True))]
        with Classifier(model).session(made.x.to(device)) as session:
            return sorted(run(session, attack, jobs, slots=slots), key=lambda outcome: outcome.sample)
    finally:
        model.cpu()


def hundred_digits():
    model, x, y = digits()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).nonzero().flatten()[:100]
    return digits()._replace(x=x[right], y=y[right])


def differing(one, other):
    return sum(first.success != second.success for first, second in zip(one, other, strict=True))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
def test_a_gpu_gives_the_verdicts_of_the_cpu(attack):
    made = hundred_digits()

    assert differing(ended(made, attack, GPU), ended(made, attack, torch.device("cpu"))) <= NEAR


def test_gradients_pass_straight_through_on_a_gpu_as_on_a_cpu():
    made = hundred_digits()
    table = made.x[:50].flatten(1).clone()

    def looked_up(x: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(x.flatten(1), table.to(x)).argmin(1)
        return (0.3 * x + 0.7 * table.to(x)[nearest].view_as(x)).mul(16).round() / 16

    model = Changed(made.model, before=looked_up)
    broken = []
    for device in (GPU, torch.device("cpu")):
        classifier = Classifier(model.to(device), straight_through=True)
        broken.append(attack(classifier, made.x.to(device), made.y, APGD(0.2, steps=20)).success.cpu())
    made.model.cpu()
    assert int((broken[0] != broken[1]).sum()) <= NEAR
    assert int(broken[0].sum()) > 10


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
def test_the_batch_size_does_not_change_verdicts(attack):
    made = hundred_digits()

    assert differing(ended(made, attack, GPU, slots=64), ended(made, attack, GPU, slots=7)) <= NEAR


THREATS = [(name, norm) for name in classes() for norm in threats(name, classes()[name])]


@pytest.mark.parametrize(("name", "norm"), THREATS)
def test_every_attack_ends_on_a_gpu_as_on_the_cpu(name, norm):
    under_test = subject(name, norm)
    made, attack = under_test.images(count=8), under_test.made(restarts=2)
    here, there = (ended(made, attack, torch.device(kind)) for kind in ("cpu", GPU))
    with torch.no_grad():
        labels = made.model(torch.stack([each.x_adv for each in there]).cpu()).argmax(1).tolist()

    assert differing(here, there) <= 1
    assert sum(label != each.label for label, each in zip(labels, there, strict=True)) <= 1


@pytest.mark.parametrize("options", [{}, {"smoothing": Smoothing(0.1, n=200)}], ids=["randomized", "smoothed"])
def test_a_model_with_noise_is_judged_alike(options):
    made = hundred_digits()
    model = made.model if options else Noisy(made.model, spread=0.05)

    def robust(device):
        run_ = evaluate(
            Classifier(model.to(device), eot=5, **options), dataset=TensorDataset(made.x[:50], made.y[:50]),
            attacks="pgd:steps=5", norm="L2", eps=0.5, samples=None, device=device,
        )  # fmt: skip
        model.cpu()
        return run_.results.query("role == 'worst-case'")["correct"].item()

    assert abs(robust("cuda") - robust("cpu")) <= 5  # a GPU draws other numbers


class Sequences(nn.Module):
    """Reads an image row by row, with dropout between two layers."""

    def __init__(self, kind):
        super().__init__()
        self.layers, self.head = kind(8, 16, num_layers=2, batch_first=True, dropout=0.5), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.layers(x[:, 0])[0][:, -1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_have_gradients(kind):
    # "cudnn RNN backward can only be called in training mode"
    model, x = filled(Sequences(kind)).eval(), hundred_digits().x
    with torch.no_grad():
        made = digits()._replace(model=model, x=x, y=model(x).argmax(1))

    assert differing(ended(made, ATTACKS[0], GPU), ended(made, ATTACKS[0], torch.device("cpu"))) <= NEAR
    assert not model.layers.training
    assert model.layers.dropout == 0.5


@compiles
def test_the_callers_default_device_and_compiled_model_change_nothing():
    # Numbers of images were on the GPU, and each answer of a CUDA graph was written over the last one.
    made = hundred_digits()
    expected = ended(made, ATTACKS[0], GPU)
    torch.set_default_device("cuda")
    try:
        run_ = evaluate(
            torch.compile(made.model.to(GPU), mode="reduce-overhead"), dataset=TensorDataset(made.x, made.y),
            attacks=[ATTACKS[0]], samples=None,
        )  # fmt: skip
    finally:
        torch.set_default_device(None)
        made.model.cpu()
    robust = run_.results.query("role == 'worst-case'")["correct"].item()

    assert abs(robust - sum(not outcome.success for outcome in expected)) <= NEAR


class Apart(nn.Module):
    """Its second half is on another device than its first."""

    def __init__(self, model, first, second):
        super().__init__()
        self.first, self.second, self.device = model[:2].to(first), model[2:].to(second), second

    def forward(self, x):
        return self.second(self.first(x).to(self.device))


@pytest.mark.parametrize("second", ["cpu", "cuda"])
def test_a_model_on_two_devices_is_attacked(second):
    # The logits are on the second device, the labels were on the first.
    made = hundred_digits()
    first = "cuda" if second == "cpu" else "cpu"
    robust = attack(Apart(copy.deepcopy(made.model), first, second), made.x, made.y, ATTACKS[0]).robust_accuracy

    assert abs(100 * robust - sum(not outcome.success for outcome in ended(made, ATTACKS[0], GPU))) <= NEAR


def test_a_surrogate_on_another_device_is_queried_there():
    made = hundred_digits()
    surrogate, model = copy.deepcopy(made.model), copy.deepcopy(made.model).to(GPU)
    robust = [
        attack(model, made.x, made.y, ATTACKS[0], surrogate=each).robust_accuracy for each in (surrogate, model, None)
    ]

    assert max(robust) - min(robust) <= NEAR / 100


def test_a_model_of_buffers_is_where_they_are():
    made = hundred_digits()
    fixed = copy.deepcopy(made.model)
    for layer in fixed.modules():
        for name, weight in list(layer._parameters.items()):
            del layer._parameters[name]
            layer.register_buffer(name, weight.detach())
    outcomes = [attack(each, made.x, made.y, ATTACKS[0]) for each in (fixed.to(GPU), made.model)]

    assert abs(outcomes[0].robust_accuracy - outcomes[1].robust_accuracy) <= NEAR / 100


def test_each_success_is_one_for_the_callers_own_forward():
    made = hundred_digits()
    outcomes = [outcome for outcome in ended(made, ATTACKS[0], GPU) if outcome.success]
    model = made.model.to(GPU)
    try:
        with torch.no_grad():
            labels = model(torch.stack([outcome.x_adv for outcome in outcomes]).to(GPU)).argmax(1).tolist()
    finally:
        model.cpu()

    assert outcomes
    assert labels == [outcome.label for outcome in outcomes]


@pytest.mark.parametrize("attack", [PGD, APGD])
def test_the_host_waits_three_times_in_a_step(attack):
    made = problem("cnn", 1, 8, 8, count=8)

    def waits(steps):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                ended(made, attack(0.0, steps=steps), GPU)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchronizing" in str(each.message) for each in said)

    waits(1)  # the first run of a process also loads kernels
    assert waits(40) - waits(10) == 3 * 30


def test_memory_that_is_too_short_changes_no_verdict(monkeypatch):
    made = hundred_digits()
    expected = ended(made, ATTACKS[0], GPU)
    answered, failed = Plain.query, []

    def query(self, attack, state):
        if len(state) > 20:
            failed.append(len(state))
            torch.empty(1 << 50, dtype=torch.uint8, device=GPU)
        return answered(self, attack, state)

    monkeypatch.setattr(Plain, "query", query)

    assert differing(ended(made, ATTACKS[0], GPU), expected) <= NEAR
    assert failed


@compiles
@pytest.mark.parametrize("options", [{"bf16": True}, {"tf32": True}, {"compile": True}, {"cuda_graphs": True}], ids=str)
def test_a_faster_search_is_judged_in_fp32(options):
    made = hundred_digits()
    try:
        run_ = evaluate(
            Classifier(made.model.to(GPU), **options), dataset=TensorDataset(made.x, made.y), attacks="pgd:steps=10",
            norm="Linf", eps=0.1, samples=None, device="cuda",
        )  # fmt: skip
    finally:
        made.model.cpu()
    robust = run_.results.query("role == 'worst-case'")["correct"].item()
    expected = sum(not outcome.success for outcome in ended(made, PGD(0.1, steps=10), GPU))

    assert abs(robust - expected) <= NEAR


class Arithmetic(torch.autograd.Function):
    """The identity, which notes whether TF32 is allowed in its forward and its backward pass."""

    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        seen.append(("forward", torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.append(("backward", torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return grad, None


def test_only_the_search_is_in_tf32():
    made, seen = problem("cnn", 1, 8, 8, count=4), []
    noting = Changed(made.model, before=lambda x: Arithmetic.apply(x, seen)).to(GPU)
    x = made.x.to(GPU)
    with Classifier(noting, fold=False, tf32=True).session(x) as session:
        jobs = [Job(number, each, int(y)) for number, (each, y) in enumerate(zip(x, made.y, strict=True))]
        seen.clear()
        list(run(session, PGD(0.0, steps=2), jobs, slots=4))
        searched = seen.copy()
        seen.clear()
        session.logits(x)
    made.model.cpu()

    assert {each for each in searched if each[0] == "backward"} == {("backward", True, "high")}
    assert ("forward", True, "high") in searched
    assert seen == [("forward", False, "highest")]
