"""Small models and data that the tests share; every number comes from a generator of its own."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.engine.jobs import Job, Outcome
from robustkit.engine.scheduler import run
from robustkit.primitives.protocol import Attack, Seen, Trials
from robustkit.testing.problems import EPS as EPS
from robustkit.testing.problems import Problem as Problem
from robustkit.testing.problems import filled as filled
from robustkit.testing.problems import images as images
from robustkit.testing.problems import problem as problem

# Two busy cores: with more threads torch waits for its own workers.
torch.set_num_threads(1)

KEYS_APART = 1_000_003  # between the noise keys of two trials


class Digits(NamedTuple):
    model: nn.Module
    x: Tensor  # [N, 1, 8, 8] test images
    y: Tensor


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
    return Trials(x, label, none, none, torch.arange(count) * KEYS_APART + key, torch.zeros_like(none))


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
