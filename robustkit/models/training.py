"""Clean training, once, of a model that has no weights for a small data set.

A baseline to attack, not a record: no augmentation, which would be wrong for some data (a flipped 6 is no digit).
Chosen on the validation split of digits; the test split was never looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.models.batchnorm import recalculate_statistics
from robustkit.models.one_cycle import one_cycle

from .pixels import PixelModel

Report = Callable[[str, float | None], None]
# Up to so many images one thread is enough (ResNet-18 on digits: 32 s, two threads 18 s), makes the same bits whatever
# the number of cores, and is safe: with one of two cores taken by another program, two threads needed 440 s.
ONE_THREAD = 5_000
STATISTICS = 10_000  # images that BatchNorm statistics are taken over


@dataclass(frozen=True)
class CleanRecipe:
    """SGD with Nesterov momentum under a one-cycle learning rate; 8 epochs reach the plateau on digits."""

    epochs: int = 8
    batch: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: float = 0.25  # share of the steps in which the learning rate rises
    clip: float = 1.0  # largest norm of a step's gradient; VGG-11: 48 % without (4 epochs), 95 % with (6)
    seed: int = 0


class Subset(NamedTuple):
    """Some images of a data set."""

    data: Dataset
    ids: Sequence[int]


def train(model: PixelModel, part: Subset, held_out: Subset, recipe: CleanRecipe, report: Report) -> float:
    """The accuracy on `held_out` after training `model` in place; the model, on the CPU, is left in eval mode.

    The same bits each time on one machine. The global generator is left as it was.

    Raises:
        UserError: the accuracy is hardly above chance, so the model would be no subject for an evaluation.
    """
    with _own_randomness(recipe.seed), _threads(1 if len(part.ids) <= ONE_THREAD else torch.get_num_threads()):
        # Channels last: on a CPU MobileNetV3 trains 2.6 times faster (7.4 s for 19.0 s), ResNet-18 as fast.
        model.to(memory_format=torch.channels_last)
        _descend(model, part, recipe, report)
        _refresh_statistics(model, part)
        model.eval()
        accuracy = _accuracy(model, held_out)
        model.to(memory_format=torch.contiguous_format)
    model.zero_grad(set_to_none=True)
    # Five times chance, for 10 classes one half: far below every network that learnt, far above those that did not.
    if accuracy < min(0.5, 5 / model.num_classes):
        raise UserError(
            f"{model.name} learnt nothing on {part.data.name} (accuracy {accuracy:.1%} on held-out images); "
            "choose another model such as resnet18, or pass --weights FILE."
        )
    return accuracy


def batches(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """`size` numbers at a time; a last one alone is left out, for BatchNorm cannot do with one value a channel."""
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        if len(some) > 1 or start == 0:
            yield some


def rate(recipe: CleanRecipe, share: float) -> float:
    """The learning rate after a share of the steps."""
    return recipe.lr * one_cycle(recipe.warmup, share)


@torch.enable_grad()
def _descend(model: PixelModel, part: Subset, recipe: CleanRecipe, report: Report) -> None:
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
    )
    total = recipe.epochs * sum(1 for _ in batches(part.ids, recipe.batch))
    shuffle = torch.Generator().manual_seed(recipe.seed)
    model.train()
    done = 0
    for _ in range(recipe.epochs):
        order = [part.ids[place] for place in torch.randperm(len(part.ids), generator=shuffle).tolist()]
        for ids in batches(order, recipe.batch):
            optimiser.param_groups[0]["lr"] = rate(recipe, done / total)
            x, y = part.data.batch(ids)
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimiser.step()
            done += 1
            report(f"training {model.name} on {part.data.name}", done / total)


def _refresh_statistics(model: PixelModel, part: Subset) -> None:
    """Recalculate BatchNorm's mean and variance for the final weights.

    After 180 steps the running ones of MobileNetV3 (momentum 0.01) are still mostly their start: 10 % against 97 %.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    ids = part.ids[:STATISTICS]
    recalculate_statistics(model, norms, (part.data.batch(some)[0] for some in batches(ids, 256)))


@torch.no_grad()
def _accuracy(model: PixelModel, part: Subset) -> float:
    right = 0
    for start in range(0, len(part.ids), 256):
        x, y = part.data.batch(part.ids[start : start + 256])
        right += int((model(x).argmax(1) == y).sum())
    return right / len(part.ids)


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """The global generator, from which dropout draws, seeded inside and as before outside."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also seed every GPU, and those are not put back.
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
