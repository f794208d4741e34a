"""Trainings for one process and for two: `python -m tests.defenses.team FOLDER RANK` runs all of them."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.inner_attack.objectives import build_objective
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.training import stepping
from robustkit.defenses.training.images import TrainingImages
from robustkit.defenses.training.processes import processes
from robustkit.defenses.training.selection import Judge, ValidationScore
from robustkit.defenses.training.stepping import Stepper
from robustkit.defenses.weights.batchnorm import norms_of
from robustkit.defenses.weights.prior import Prior
from torch import Tensor, nn

from robustkit.data import from_tensors
from robustkit.errors import UserError
from tests.defenses.doubles import Wrapped, at_step
from tests.defenses.nets import SHORT, VAL, batch, digits, net, state

FROZEN = SHORT.but(bn="frozen", lr=0.005, clip=1.0)
# Batches of odd size, and a last one that is too small to be shared.
IMAGES = digits(0, 158)
ODD = FROZEN.but(batch=31)

RECIPES: dict[str, Recipe] = {
    "at": ODD,
    "clean": ODD.but(objective="clean"),
    "trades": ODD.but(objective="trades:6", label_smoothing=0.1),
    "mart": ODD.but(objective="mart:5", optimizer="adamw", lr=1e-3),
    "accumulated": ODD.but(accumulate=2, ema=0.9, prior="l2sp:0.01"),
    "awp": ODD.but(awp=0.01, accumulate=2),
    "free": ODD.but(attack="free:3", accumulate=2),
    "free, smooth": ODD.but(attack="free:2", label_smoothing=0.2),
    "unfreezing": ODD.but(freeze="0:all-but:fc;1:none"),
}
MOVING: dict[str, Recipe] = {
    "batch": SHORT.but(batch=31, recalibrate=True, ema=0.9),
    "attacked in train mode": SHORT.but(attack_bn="train"),
    "split": SHORT.but(objective="trades:2", bn="split"),
    "ewc": SHORT.but(prior="ewc:1", freeze="conv1"),
}


@contextmanager
def last_epoch_kept() -> Iterator[None]:
    """Each score is better than the one before, so that the last weights of a training are compared."""
    with mock.patch.object(
        Judge, "score", side_effect=[ValidationScore(0.9, share / 99, share / 99) for share in range(99)]
    ):
        yield


def trained(recipe: Recipe, network: nn.Module | None = None, **more: Any) -> dict[str, Any]:
    """The end of a training: weights, buffers and history."""
    network = network or net()
    with last_epoch_kept():
        result = finetune(network, IMAGES, VAL, eps=0.1, recipe=recipe, **more)
    return {"state": state(network), "history": result.history.drop(columns="seconds").to_dict("list")}


def unused() -> nn.Module:
    """A network with a layer that no loss depends on, and a weight that does not learn."""
    network = Wrapped(net())
    network.aside = nn.Linear(3, 3)
    with torch.no_grad():
        network.aside.weight.fill_(1 + rank())
    network.inner.conv1.weight.requires_grad_(False)
    return network


class Fails(nn.Module):
    """Fails on one image, which belongs to the share of one process alone."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.how = net(), how

    def forward(self, x: Tensor) -> Tensor:
        # In eval mode it is attacked, in train mode it learns.
        if self.training == (self.how == "gradient") or (x[:, 0, 0, 0] < 0.5).all():
            return self.inner(x)
        if self.how == "dies":
            os._exit(0)
        if self.how == "raises":
            raise ZeroDivisionError("first line\nsecond line")
        return self.inner(x) * torch.nan


def failing(how: str) -> dict[str, Any]:
    """A training that fails in the second process."""
    x, y = IMAGES[0].clone(), IMAGES[1]
    # Odd places of a batch belong to it.
    x[TrainingImages(from_tensors(x, y), SHORT, x.device).order(0)[33], 0, 0, 0] = 1.0
    finetune(Fails(how), (x, y), VAL, eps=0.1, recipe=SHORT)
    return {}


def dropped() -> dict[str, Any]:
    """A training with dropout, and which values certainly stayed and certainly were dropped in its first step."""
    network, seen = net(dropout=0.5), []

    def remember(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if module.training:
            seen.append((output != 0, (output == 0) & (inputs[0] != 0)))

    network.drop.register_forward_hook(remember)
    return {**trained(FROZEN, network), "stayed": seen[0][0], "dropped": seen[0][1]}


def different() -> dict[str, Any]:
    return trained(SHORT.but(lr=0.01 * (1 + rank())))


def interrupted(folder: Path) -> dict[str, Any]:
    """A training that the first process interrupts in its second epoch, and then the same again."""

    def interrupt() -> None:
        raise InterruptedError("here")

    text = ""
    recipe = FROZEN.but(attack="free:2", ema=0.9, freeze="0:all-but:fc;1:none")
    try:
        trained(recipe, out=folder / "kept", watch=at_step(9, interrupt))
    except (UserError, InterruptedError) as error:
        text = f"{type(error).__name__}: {error}"
    return {"error text": text, **trained(recipe, out=folder / "kept" if rank() == 0 else None)}


def judged(recipe: Recipe) -> dict[str, Any]:
    """As `trained`, but validation images choose the epoch, and the starts of the processes differ."""
    network = net()
    with torch.no_grad():
        network.fc.bias += rank()
    result = finetune(network, IMAGES, VAL, eps=0.1, recipe=recipe)
    return {"state": state(network), "best": result.best, "start": result.start, "notes": result.notes}


def first_attack() -> dict[str, Any]:
    """Noise streams and adversarial images of the first two steps."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    craft = stepping.craft

    def remember(network: Any, attack: Any, x: Tensor, y: Tensor, key: Tensor, objective: Any) -> Tensor:
        seen.append((x, key, craft(network, attack, x, y, key, objective)))
        return seen[-1][2]

    with mock.patch.object(stepping, "craft", remember):
        trained(ODD.but(epochs=1, lr=1e-9))
    # The first call tries the attack before the training.
    return {"seen": [torch.cat(parts) for parts in zip(*seen[1:3], strict=True)]}


def alone_in_the_attack() -> dict[str, Any]:
    """The first process attacks three more times inside the wrapper; then all take a step."""
    network = net().train()
    with processes(torch.device("cpu")) as team, team.fail_together():
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        taker = Stepper(
            network,
            inner_attack("pgd:steps=2", "Linf", 0.1),
            build_objective("at"),
            SHORT,
            Prior({}),
            optimizer,
            None,
            None,
            team,
        )
        with taker.together():
            before = state(network)
            for _ in range(3 if team.first else 0):
                taker.adversarial(batch(), 1.0)
            untouched = all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
            clean = all(weight.grad is None for weight in network.parameters())
            own = batch(16 * rank(), 16)._replace(whole=32)
            report = taker.step([own], 1.0)
    return {"untouched": untouched, "no gradients": clean, "report": tuple(report), "state": state(network)}


def blended() -> dict[str, Any]:
    """Running statistics after one step in train mode, with 3 images here and 1 there."""
    network = net().train()
    with processes(torch.device("cpu")) as team:
        network(digits(20 * team.rank, 16)[0])
        own = [norm.running_var.clone() for norm in norms_of(network)]
        network.bn1.eval()
        with torch.no_grad():
            network.bn1.running_mean.fill_(1 / 3)
        team.synchronize_buffers(network, 1.0 if team.alone else (0.75, 0.25)[team.rank])
    return {"own": own, "state": state(network)}


SCENES: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: lambda _, recipe=recipe: trained(recipe) for name, recipe in {**RECIPES, **MOVING}.items()},  # type: ignore[misc]
    "unused": lambda _: trained(SHORT.but(bn="frozen"), unused()),
    "dropout": lambda _: dropped(),
    "judged": lambda _: judged(FROZEN.but(prior="l2sp:0.1")),
    "judged, clean": lambda _: judged(FROZEN.but(objective="clean")),
    "first attack": lambda _: first_attack(),
    "alone in the attack": lambda _: alone_in_the_attack(),
    "blended": lambda _: blended(),
    "loss": lambda _: failing("loss"),
    "gradient": lambda _: failing("gradient"),
    "raises": lambda _: failing("raises"),
    "different": lambda _: different(),
    "too small": lambda _: trained(SHORT.but(batch=3)),
    "interrupted": interrupted,
    "dies": lambda _: failing("dies"),
}


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def played(name: str, folder: Path) -> dict[str, Any]:
    """The result of a scene, or its error."""
    try:
        return SCENES[name](folder)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    warnings.simplefilter("error")
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=(folder / "meeting").as_uri(), rank=number, world_size=2)
    results = {}
    for name in SCENES:
        results[name] = played(name, folder)
        # Saved after each one: in the last scene a process ends.
        torch.save(results, folder / f"{number}.pt")
    # Without destroying the group, which would wait for the process that has ended.
    os._exit(0)
