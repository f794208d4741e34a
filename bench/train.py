"""One epoch of adversarial training with PGD-7: robustkit, the field's loops, torchattacks and ART, in time and passes.

All in one process with one thread, interleaved: in every round each trainer runs one epoch from the same weights, in an
order that rotates, and its CPU time is divided by that of the loop with `.backward()` in the same round; the table has
the medians of these ratios, and the least time over the least, which a busy machine distorts less. Passes are counted
by hooks, on one batch.

    python bench/train.py [--zoo DIR] [--rounds 5] [--only TEXT] 2>/dev/null    # without ART's progress bars
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from narrow import resnet18_w8
from subjects import zoo
from torch import Tensor, nn
from torch.nn import functional as F
from trainers import TRAINERS, Task, Trainer, in_image, plain, robustkit, same_starts, zeroed_through_weights

from robustkit import load_dataset, load_model

STEPS = 7
REFERENCE = ".backward()"


class Subject(NamedTuple):
    name: str
    model: nn.Module  # every weight learns
    task: Task


class Passes(NamedTuple):
    """Seconds."""

    unit: float  # half of one forward and one gradient of the image
    weights: float  # what the gradient of all weights takes beside them


class Counted(nn.Module):
    """Rows through a network: forwards in either mode, gradients of the image, gradients of the weights."""

    # It cannot be traced, so that robustkit attacks it unfolded: the same queries, up to the last bits.
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.asked, self.learnt, self.back, self.weights, self.last = 0, 0, 0, 0, 0
        # Its first layer is where a gradient of the weights ends that goes through the whole network.
        next(network.parameters()).register_hook(self._reached_weights)

    def forward(self, x: Tensor) -> Tensor:
        self.last = len(x)
        if self.network.training:
            self.learnt += len(x)
        else:
            self.asked += len(x)
        logits: Tensor = self.network(x)
        if logits.requires_grad:
            logits.register_hook(self._came_back)
        return logits

    def _came_back(self, grad: Tensor) -> None:
        self.back += len(grad)

    def _reached_weights(self, grad: Tensor) -> None:
        self.weights += self.last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="text in a network's name")
    parser.add_argument("--trainers", default=",".join(TRAINERS).replace(", ", "; "), help="separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [name.replace("; ", ", ") for name in options.trainers.split(",")]
    for subject in subjects(options.zoo, options.only):
        task = subject.task
        steps = len(task.y) // task.batch
        print(f"\n{subject.name}, Linf {task.eps:.4f}, PGD-{task.steps}, {steps} steps of {task.batch} images")
        print(agreement(subject))
        measured(subject, {name: TRAINERS[name] for name in chosen}, options.rounds)


def subjects(folder: Path | None, only: str) -> Iterator[Subject]:
    digits = load_dataset("digits", "train")
    x, y = digits.batch(range(1024))  # eight whole batches
    makers: dict[str, Callable[[], Subject]] = {
        "resnet18 at width 8, digits": lambda: Subject("", resnet18_w8(), Task(x, y, 0.2, 128, STEPS)),
        "resnet18, digits": lambda: Subject("", load_model("resnet18", dataset="digits"), Task(x, y, 0.2, 128, STEPS)),
    }
    if folder is not None:
        makers["resnet20_cifar"] = lambda: _of_zoo(folder, "resnet20_cifar", 256)
        makers["resnet2b_cifar"] = lambda: _of_zoo(folder, "resnet2b_cifar", 256)
    for name, make in makers.items():
        if only in name:
            subject = make()
            yield subject._replace(name=name, model=subject.model.requires_grad_(True))


def _of_zoo(folder: Path, network: str, count: int) -> Subject:
    found = zoo(folder, network, "cifar10", 500)
    return Subject(network, found.model, Task(found.x[:count], found.y[:count], 8 / 255, 128, STEPS))


def agreement(subject: Subject) -> str:
    """How far robustkit's weights and the plain loop's are apart after one epoch from the same random starts."""
    start, weights = same_starts(subject.task), []
    for trainer in (robustkit(folded=False, loss="ce"), plain(in_image, start), plain(zeroed_through_weights, start)):
        model = copy.deepcopy(subject.model)
        trainer(model, subject.task)()
        weights.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    before = torch.cat([weight.detach().flatten() for weight in subject.model.parameters()])
    moved = (weights[0] - before).norm()
    apart = [float((weights[0] - other).norm() / moved) for other in weights[1:]]
    return f"weights apart, in units of how far they moved: {apart[0]:.1e} autograd.grad, {apart[1]:.1e} .backward()"


def measured(subject: Subject, trainers: dict[str, Trainer], rounds: int) -> None:
    task, names = subject.task, list(trainers)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    limits, found = [], []
    for turn in range(rounds):
        now = task._replace(seed=turn)
        before, limit = _passes(subject), _seconds(TRAINERS[REFERENCE], subject.model, now)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(_seconds(trainers[name], subject.model, now))
        # The machine drifts: what a round is measured in is the mean of before and after.
        limits += [(limit, _seconds(TRAINERS[REFERENCE], subject.model, now))]
        found.append(Passes(*(sum(pair) / 2 for pair in zip(before, _passes(subject), strict=True))))
    unit = statistics.median(each.unit for each in found)
    weights = statistics.median(each.weights / each.unit for each in found)
    print(f"unit: half of a forward and image gradient of one batch, {1000 * unit:.1f} ms")
    least, most = 2 * STEPS + 2 + weights, 2 * STEPS + 2 + (STEPS + 1) * weights
    print(f"the gradient of the weights takes {weights:.2f}, so a step {least:.1f}, with .backward() {most:.1f} units")
    columns = f"{'trainer':24} {'time':>6} {'from - to':>13} {'least':>6} {'faster':>7} {'units a step':>13}"
    print(f"{columns}   counted: F eval + F train + B image + B weights")
    few = task._replace(x=task.x[: task.batch], y=task.y[: task.batch])
    for name in names:
        rows = Counted(copy.deepcopy(subject.model))
        trainers[name](rows, few)()
        each = [number / task.batch for number in (rows.asked, rows.learnt, rows.back, rows.weights)]
        ratios = [2 * time / sum(pair) for time, pair in zip(seconds[name], limits, strict=True)]
        units = [time / one.unit / len(task.y) * task.batch for time, one in zip(seconds[name], found, strict=True)]
        span, middle = f"{min(ratios):.3f}-{max(ratios):.3f}", statistics.median(ratios)
        least = min(seconds[name]) / min(time for pair in limits for time in pair)
        print(
            f"{name:24} {middle:6.3f} {span:>13} {least:6.3f} {1 / middle:7.2f} {statistics.median(units):13.1f}   "
            f"{sum(each):g} = {' + '.join(f'{number:g}' for number in each)}",
            flush=True,
        )


def _seconds(trainer: Trainer, model: nn.Module, task: Task) -> float:
    epoch = trainer(copy.deepcopy(model), task)
    since = time.process_time()
    epoch()
    return time.process_time() - since


def _passes(subject: Subject) -> Passes:
    """Of one batch in eval mode, the least of five each."""
    model, task = copy.deepcopy(subject.model).eval(), subject.task
    x, y = task.x[: task.batch].clone().requires_grad_(), task.y[: task.batch]
    image, both = [], []
    for _ in range(5):
        for wanted, times in (([x], image), ([x, *model.parameters()], both)):
            since = time.process_time()
            torch.autograd.grad(F.cross_entropy(model(x), y), wanted)
            times.append(time.process_time() - since)
    return Passes(min(image) / 2, min(both) - min(image))


if __name__ == "__main__":
    main()
