"""How many images survive attacks on classifiers with a detector, against published attacks on such models?

    python bench/rejections.py [--seed 1] [--start 1500] [--images 200] [--eps 0.15] [--units 0.1,1,10] [--only knn]
                               [--attacks apgd:steps=40,default]

A small convolutional network on scikit-learn's digits rejects images whose score is above that of 95 % of the training
images; `units` multiply the score. Orthogonal and Selective PGD (Bryniarski et al. 2022, arXiv:2106.15023) get the
scores themselves, which no unit changes; they take steps of a twentieth of the radius. A number is of images that the
attack leaves, with its passes for each image that the model gets right; ! if it warns. What attacks see of a rejection
was chosen with `--seed 0 --start 1300`.
"""

import argparse
import warnings
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import robustkit
from robustkit import Classifier

_TRAINED_ON, _REJECTED = 1300, 0.05
_STEPS, _NEIGHBOURS = 200, 5


class Rejecting(nn.Module):
    """A network whose further output is above all others where a score is above its limit."""

    def __init__(self, network: nn.Module, score: Callable[[Tensor], Tensor], unit: float, images: Tensor) -> None:
        super().__init__()
        self.network, self.score, self.unit = network, score, unit
        with torch.no_grad():
            self.limit = score(images).quantile(1 - _REJECTED)

    def excess(self, x: Tensor) -> Tensor:
        """`[n]` how far the score of images is above the limit."""
        return self.score(x) - self.limit

    def forward(self, x: Tensor) -> Tensor:
        logits = self.network(x)
        return torch.cat([logits, (logits.amax(1) + self.unit * self.excess(x)).unsqueeze(1)], 1)


def network(outputs: int) -> nn.Sequential:
    """Three convolutions and a linear layer, untrained."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1),
        nn.ReLU(), nn.Flatten(), nn.Linear(128, outputs),
    )  # fmt: skip


def trained(model: nn.Module, x: Tensor, loss_of: Callable[[Tensor], Tensor], epochs: int) -> nn.Module:
    """Trained with a loss of the numbers of images."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for numbers in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            loss_of(numbers).backward()
            optimizer.step()
    return model.eval()


def pgd(model: nn.Module, x: Tensor, y: Tensor, eps: float, steps: int = 20) -> Tensor:
    """Images that a network misclassifies."""
    found = x + (2 * torch.rand_like(x) - 1) * eps
    for _ in range(steps):
        found = found.clamp(0, 1).requires_grad_()
        (grad,) = torch.autograd.grad(functional.cross_entropy(model(found)[:, :10], y), found)
        found = (x + (found + eps / 5 * grad.sign() - x).clamp(-eps, eps)).detach()
    return found.clamp(0, 1)


def subjects(x: Tensor, y: Tensor, eps: float) -> dict[str, Callable[[float], Rejecting]]:
    """Models that reject, by name, each for a unit of its score."""
    base = network(10)
    trained(base, x, lambda i: functional.cross_entropy(base(x[i]), y[i]), 30)
    detector = network(2)
    trained(detector, x, lambda i: _detection(detector, base, x[i], y[i], eps), 30)
    eleven = network(11)
    trained(eleven, x, lambda i: _eleven(eleven, base, x[i], y[i], eps), 30)
    autoencoder = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 64), nn.Unflatten(1, (1, 8, 8))
    )
    trained(autoencoder, x, lambda i: functional.mse_loss(autoencoder(x[i]), x[i]), 60)
    features = base[:7]
    with torch.no_grad():
        bank = features(x)
    scores: dict[str, Callable[[Tensor], Tensor]] = {
        "a detector trained on PGD": lambda q: detector(q).diff(dim=1).squeeze(1),
        "autoencoder": lambda q: 10 * (autoencoder(q) - q).flatten(1).norm(dim=1),
        "feature squeezing": lambda q: 5 * (base(q).softmax(1) - base(_blurred(q)).softmax(1)).abs().sum(1),
        "confidence": lambda q: -3 * base(q).log_softmax(1).amax(1),
        "neighbours": lambda q: torch.cdist(features(q), bank).topk(_NEIGHBOURS, largest=False).values.mean(1),
        "roughness": lambda q: 30 * (q.diff(dim=2).abs().mean((1, 2, 3)) + q.diff(dim=3).abs().mean((1, 2, 3))),
    }
    found = {name: lambda unit, score=score: Rejecting(base, score, unit, x).eval() for name, score in scores.items()}
    classes = nn.Sequential(eleven, _First(10))
    own: Callable[[Tensor], Tensor] = lambda q: eleven(q)[:, 10] - eleven(q)[:, :10].amax(1)  # noqa: E731
    return {**found, "an eleventh class": lambda unit: Rejecting(classes, own, unit, x).eval()}


class _First(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : self.count]


def _blurred(x: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1), "replicate"), 3, 1)


def _detection(detector: nn.Module, base: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    perturbed = pgd(base, x, y, eps * (0.5 + torch.rand(1).item()))
    return functional.cross_entropy(detector(torch.cat([x, perturbed])), torch.tensor([0, 1]).repeat_interleave(len(x)))


def _eleven(eleven: nn.Module, base: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    perturbed = torch.cat([pgd(base, x, y, eps * (0.5 + torch.rand(1).item())), pgd(eleven, x, y, eps, 5)])
    rejected = functional.cross_entropy(eleven(perturbed), torch.full((len(perturbed),), 10))
    return functional.cross_entropy(eleven(x), y) + rejected / 2


def published(model: Rejecting, x: Tensor, y: Tensor, eps: float, *, orthogonal: bool) -> Tensor:
    """`[n]` bool, which images Selective or Orthogonal PGD breaks."""
    found, broken = x + (2 * torch.rand_like(x) - 1) * eps, torch.zeros(len(x), dtype=torch.bool)
    for _ in range(_STEPS):
        found = found.clamp(0, 1).requires_grad_()
        logits, excess = model.network(found), model.excess(found)
        right = logits.gather(1, y[:, None]).squeeze(1)
        lead = right - logits.scatter(1, y[:, None], -torch.inf).amax(1)
        broken |= (lead < 0) & (excess < 0)
        of_lead, of_excess = (-torch.autograd.grad(each.sum(), found)[0].flatten(1) for each in (lead, excess))
        ways = (of_lead, of_excess)
        if orthogonal:
            ways = _without(of_lead, of_excess), _without(of_excess, of_lead)
        way = torch.where((lead < 0)[:, None], ways[1], ways[0]).reshape(x.shape)
        found = (x + (found + eps / 20 * way.sign() - x).clamp(-eps, eps)).detach()
    return broken


def _without(way: Tensor, other: Tensor) -> Tensor:
    return way - (way * other).sum(1, keepdim=True) / other.square().sum(1, keepdim=True).clamp(min=1e-12) * other


def main() -> None:
    """Print a line for each model and unit."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--start", type=int, default=1500)
    options.add_argument("--images", type=int, default=200)
    options.add_argument("--eps", type=float, default=0.15)
    options.add_argument("--units", default="0.1,1,10")
    options.add_argument("--attacks", default="apgd:steps=40,default")
    options.add_argument("--only", default="")
    asked = options.parse_args()
    torch.manual_seed(asked.seed)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    x, y = (each[asked.start : asked.start + asked.images] for each in (images, labels))
    models = subjects(images[:_TRAINED_ON], labels[:_TRAINED_ON], asked.eps)
    for name, make in models.items():
        if asked.only not in name:
            continue
        plain = make(1.0)
        right = plain(x).argmax(1) == y
        left = [int((right & ~published(plain, x, y, asked.eps, orthogonal=each)).sum()) for each in (False, True)]
        print(f"{name}, {int(right.sum())} right: selective {left[0]}, orthogonal {left[1]} ({3 * _STEPS})")
        for unit in map(float, asked.units.split(",")):
            cells = [_cell(make(unit), x, y, attack, asked.eps) for attack in asked.attacks.split(",")]
            print(f"  unit {unit:g}: {', '.join(cells)}", flush=True)


def _cell(model: Rejecting, x: Tensor, y: Tensor, attack: str, eps: float) -> str:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = robustkit.attack(Classifier(model, rejects=True), x, y, attack, eps=eps)
    count = int(found.clean_correct.sum())
    passes = (int(found.forwards.sum()) + int(found.backwards.sum())) / count
    return f"{attack} {count - int(found.success.sum())} ({passes:.0f}){'!' if warned else ''}"


if __name__ == "__main__":
    main()
