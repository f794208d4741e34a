"""Small models and data that the tests share; every number comes from a generator of its own."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.engine.jobs import Job, Outcome
from robustkit.engine.scheduler import run
from robustkit.primitives.protocol import Attack, Seen, Trials
from tests.networks import Attentive, Cnn, Residual

# Two busy cores: with more threads torch waits for its own workers.
torch.set_num_threads(1)

KEYS_APART = 1_000_003  # between the noise keys of two trials
# Radii that break some of the images of the models below and not all of them.
EPS = {"Linf": 0.03, "L2": 0.15, "L1": 0.8, "L0": 2.0}


class Problem(NamedTuple):
    model: nn.Module
    x: Tensor
    y: Tensor  # what the model says, so that every image is classified correctly


class Digits(NamedTuple):
    model: nn.Module
    x: Tensor  # [N, 1, 8, 8] test images
    y: Tensor


def images(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def filled(model: nn.Module, seed: int = 0, gain: float = 1.0) -> nn.Module:
    """The model in eval mode with weights and statistics from a generator of its own."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            spread = gain / (weight[0].numel() if weight.dim() > 1 else 16) ** 0.5
            weight.copy_(torch.randn(weight.shape, generator=source) * spread)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(torch.randn(module.num_features, generator=source) * 0.2)
                module.running_var.copy_(torch.rand(module.num_features, generator=source) + 0.5)
                module.weight.copy_(torch.rand(module.num_features, generator=source) + 0.5)
    return model.eval()


def problem(kind: str, *shape: int, classes: int = 4, count: int = 12, seed: int = 0) -> Problem:
    """A fresh random network and images that it classifies as `y`.

    Args:
        kind: "linear", "mlp", "cnn"; "residual mlp", "residual cnn", "attentive" for attacks that look for such layers.
    """
    values = int(torch.Size(shape).numel())
    network: nn.Module = {
        "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(values, classes)),
        "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(values, 16), nn.ReLU(), nn.Linear(16, classes)),
        "cnn": lambda: Cnn(shape, classes),  # type: ignore[arg-type]
        "residual mlp": lambda: Residual(
            nn.Sequential(nn.Flatten(), nn.Linear(values, 16), nn.ReLU()),
            nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)),
            nn.Linear(16, classes),
        ),
        "residual cnn": lambda: Residual(
            nn.Sequential(nn.Conv2d(shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)),
            nn.Linear(8 * shape[1] * shape[2], classes),
        ),
        "attentive": lambda: Attentive(values, classes),
    }[kind]()
    model, x = filled(network, seed), images(count, *shape, seed=seed)
    with torch.no_grad():
        logits = model(x)
        # Centred logits: a random network would else give nearly all images one class.
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        last.bias -= logits.mean(0)
        return Problem(model, x, model(x).argmax(1))


def jobs_of(trial: Problem, **more: object) -> list[Job]:
    return [Job(number, x, int(y), **more) for number, (x, y) in enumerate(zip(trial.x, trial.y, strict=True))]  # type: ignore[arg-type]


def outcomes(classifier: Classifier, attack: Attack, jobs: list[Job], slots: int = 64, seed: int = 0) -> list[Outcome]:
    """The outcomes of a run in a session of its own, by sample."""
    x = torch.stack([job.x for job in jobs])
    with classifier.session(x) as session:
        return sorted(run(session, attack, jobs, slots=slots, seed=seed), key=lambda outcome: outcome.sample)


def same(one: Outcome, other: Outcome) -> bool:
    """Equal in every bit."""
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(torch.equal(*pair) if isinstance(pair[0], Tensor) else pair[0] == pair[1] for pair in pairs)


def trials(x: Tensor, y: Tensor | None = None, key: int = 7) -> Trials:
    """Trials with distinct keys that aim at nothing."""
    count = len(x)
    none = torch.full((count,), -1)
    label = torch.zeros(count, dtype=torch.int64) if y is None else y
    return Trials(x, label, none, none, torch.arange(count) * KEYS_APART + key)


def hooks(model: nn.Module) -> int:
    """How many hooks a network carries."""
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def seen(loss: list[float] | Tensor, grad: Tensor, label: int = 0, classes: int = 4) -> Seen:
    """An answer without a model."""
    values = torch.as_tensor(loss, dtype=grad.dtype)
    return Seen(torch.full((len(values),), label), torch.zeros(len(values), classes), values, grad)


@cache
def digits() -> Digits:
    """A small network trained on scikit-learn's digits for about a second."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    y = torch.from_numpy(data.target)
    model = filled(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[:1400]), y[:1400]).backward()
        optimiser.step()
    model.zero_grad()
    return Digits(model.requires_grad_(False), x[1400:], y[1400:])
