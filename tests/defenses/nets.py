"""A small network of digits with the names of a ResNet, trained in a blink, and recipes that are over as fast."""

import copy
from collections.abc import Iterable
from functools import cache

import torch
from robustkit.defenses import Recipe
from robustkit.defenses.inner_attack.objectives import build_objective
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.training.batches import Batch
from robustkit.defenses.training.selection import Judge, ValidationScore
from robustkit.defenses.training.stepping import Stepper
from robustkit.defenses.weights.prior import Prior
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.classifier.batch_sizes import share_comparisons
from tests.small import _digits

torch.set_num_threads(1)

SHORT = Recipe(epochs=2, batch=32, lr=0.02, attack="pgd:steps=2", select="pgd:steps=2", eps_warmup=0.0)


class Net(nn.Module):
    """Three convolutions with BatchNorm and a linear head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.layer10 = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer10(self.layer1(self.bn1(self.conv1(x)).relu()))
        return self.fc(self.drop(x.mean((2, 3))))


def net(dropout: float = 0.0) -> Net:
    """Correct on nine of ten digits, and on hardly any adversarial one."""
    network = Net(dropout)
    network.load_state_dict(_trained())
    share_comparisons(network, _first())  # of batch sizes, which would be compared anew for each copy
    return network.eval()


@cache
def _first() -> Net:
    return Net()


@cache
def _trained() -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Net()
    x, y = _digits()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, nesterov=True)
    for step in range(90):
        rows = torch.arange(step * 64, step * 64 + 64) % 900
        optimizer.zero_grad()
        F.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()
    return copy.deepcopy(network.state_dict())


def digits(first: int, count: int) -> tuple[Tensor, Tensor]:
    x, y = _digits()
    return x[first : first + count].clone(), y[first : first + count].clone()


TRAIN, VAL = digits(0, 160), digits(1200, 40)


def batch(first: int = 0, count: int = 16) -> Batch:
    x, y = digits(first, count)
    return Batch(x, y, torch.arange(first, first + count))


def stepper(model: nn.Module, recipe: Recipe = SHORT, eps: float = 0.1, prior: Prior | None = None) -> Stepper:
    """Takes steps of plain gradient descent."""
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], recipe.lr)
    inner, objective = inner_attack(recipe.attack, "Linf", eps), build_objective(recipe.objective)
    return Stepper(model.train(), inner, objective, recipe, prior or Prior({}), optimizer, None, None)


def judge_as(monkeypatch, scores: Iterable[tuple[float, float]]) -> None:
    """Let trainings see these accuracies, clean and under attack, in place of what their networks have."""
    answers = iter(scores)

    def score(judge: object, network: nn.Module) -> ValidationScore:
        clean, worst = next(answers)
        return ValidationScore(clean, worst, worst)

    monkeypatch.setattr("robustkit.defenses.training.selection.Judge.score", score)


def judge_quickly(monkeypatch) -> None:
    """Let trainings judge their networks by one forward pass in place of two attacks; margins stand for robustness."""

    def score(judge: Judge, network: nn.Module) -> ValidationScore:
        with torch.no_grad():
            logits = copy.deepcopy(network).eval()(judge.x)
        right = logits.gather(1, judge.y[:, None]).flatten()
        margins = right - logits.scatter(1, judge.y[:, None], -torch.inf).amax(1)
        return ValidationScore(*((margins > least).double().mean().item() for least in (0.0, 1.0, 1.5)))

    monkeypatch.setattr(Judge, "score", score)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    """Names of the tensors that differ in a bit."""
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks are equal in every bit."""
    return not changed(one, state(other))
