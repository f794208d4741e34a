"""How near are the errors that our minimum-norm attacks find, against other implementations, at the same budget?

Every tool gets the same images and the same number of steps. One judge, a fresh forward in batches of 100, passes all
points; an image whose point is no error counts as infinitely far. Passes are counted by hooks on the network.

    python bench/nearest.py --zoo DIR [--only ddn] [--networks cnn_a_cifar,...] [--images 64] [--steps 100] [--alone]
"""

import argparse
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from subjects import Subject, zoo
from torch import Tensor, nn

import robustkit
from robustkit.classifier.answers import answered
from robustkit.classifier.read_gradients import answered_by_count
from robustkit.primitives import noise
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Seen, Trials
from robustkit.primitives.registry import build

NETWORKS = {
    "cnn_a_cifar": "cifar10", "resnet2b_cifar": "cifar10", "trades_mnist": "mnist", "smallcnn_mnist": "mnist"
}  # fmt: skip
ORDER = {"Linf": torch.inf, "L2": 2.0, "L1": 1.0, "L0": 0.0}

Peer = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Passes(nn.Module):
    """A network that counts the rows that go through it, forwards and backwards."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.forwards, self.backwards = network, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        if x.requires_grad and torch.is_grad_enabled():
            x = x * 1.0
            x.register_hook(self._note)
        logits: Tensor = self.network(x)
        return logits

    def _note(self, grad: Tensor) -> None:
        self.backwards += len(grad)


@dataclass(frozen=True)
class Contest:
    ours: str  # specification
    norm: str
    peers: dict[str, Peer]


def contests(steps: int) -> Iterator[Contest]:
    for norm in ("L2", "Linf"):
        yield Contest("deepfool:steps=50", norm, {
            "adv-lib": advlib("deepfool", "df", norm=ORDER[norm], steps=50, return_unsuccessful=True),
            "foolbox": foolbox_(f"{norm}DeepFoolAttack", steps=50),
        })  # fmt: skip
    yield Contest(f"ddn:steps={steps}", "L2", {
        "adv-lib": advlib("decoupled_direction_norm", "ddn", steps=steps, levels=None),
        "foolbox": foolbox_("DDNAttack", steps=steps),
    })  # fmt: skip
    for norm in ("L2", "Linf", "L1", "L0"):
        peers = {"adv-lib": advlib("fast_minimum_norm", "fmn", norm=ORDER[norm], steps=steps)}
        if norm == "Linf":
            peers["adv-lib, first step 10"] = advlib(
                "fast_minimum_norm", "fmn", norm=ORDER[norm], steps=steps, α_init=10.0
            )
        peers["foolbox"] = foolbox_(f"{norm.replace('Linf', 'LInf')}FMNAttack", steps=steps)
        yield Contest(f"fmn:steps={steps}", norm, peers)
    yield Contest(f"cw:steps={2 * steps}", "L2", {
        "adv-lib": advlib("carlini_wagner.l2", "carlini_wagner_l2", max_iterations=2 * steps),
        "foolbox": foolbox_("L2CarliniWagnerAttack", steps=2 * steps),
        "torchattacks, 9 times the steps": torchattacks_("CW", steps=18 * steps),
    })  # fmt: skip
    yield Contest(f"sigma-zero:steps={steps}", "L0", {
        "adv-lib": advlib("sigma_zero", "sigma_zero", num_steps=steps)
    })  # fmt: skip
    yield Contest(f"ead:steps={2 * steps}", "L1", {
        "foolbox": foolbox_("EADAttack", steps=2 * steps, decision_rule="L1"),
    })  # fmt: skip

    yield Contest("superdeepfool", "L2", {
        "adv-lib": advlib("superdeepfool", "sdf", steps=steps),
        "adv-lib, no bisection": advlib("superdeepfool", "sdf", steps=steps, search_iter=0),
    })  # fmt: skip
    for norm in ("L2", "Linf", "L1"):
        yield Contest(f"pdpgd:steps={steps}", norm, {
            "adv-lib": advlib("primal_dual_gradient_descent", "pdpgd", norm=ORDER[norm], num_steps=steps),
        })  # fmt: skip
    yield Contest(f"pdpgd:steps={steps}", "L0", {
        "adv-lib, 2/3": advlib("primal_dual_gradient_descent", "pdpgd", norm=0, proximal_operator=23, num_steps=steps),
        "adv-lib, 0": advlib("primal_dual_gradient_descent", "pdpgd", norm=0, num_steps=steps),
    })  # fmt: skip
    for norm, distance in (("L2", 0.1), ("L1", 0.5)):
        yield Contest(f"alma:steps={steps}", norm, {
            "adv-lib": advlib("augmented_lagrangian", "alma", distance=norm.lower(), num_steps=steps, α=0.5,
                              init_lr_distance=distance),
        })  # fmt: skip
    yield Contest(f"vfga:steps={steps}", "L0", {
        "adv-lib": advlib("stochastic_sparse_attacks", "vfga", targeted=False, max_iter=steps),
    })  # fmt: skip
    yield Contest(f"pgd:steps={steps}", "L0", {})
    for setting in ("", ",pairs=false", ",direction=up", ",direction=down"):
        yield Contest(f"jsma:steps={2 * steps}{setting}", "L0", {})
    for norm in ("L2", "Linf", "L1", "L0"):
        name = f"{norm.replace('Linf', 'Linfinity')}BrendelBethgeAttack"
        yield Contest(f"brendel_bethge:steps={steps}", norm, {
            # In a batch its trust regions grow with the number of images.
            "foolbox, image by image": one_by_one(foolbox_(name, steps=steps)),
        })  # fmt: skip
    for setting in ("radius=0.001", "momentum=0"):
        yield Contest(f"brendel_bethge:steps={steps},{setting}", "L1", {})
    for norm in ("Linf", "L2"):
        yield Contest(f"apgd:steps={steps // 5},loss=dlr", norm, {
            f"adv-lib, {radii} radii": minimal_apgd(norm, steps // 5, radii) for radii in (10, 16)
        })  # fmt: skip


def ours(model: nn.Module, x: Tensor, y: Tensor, *, specification: str, norm: str) -> Tensor:
    attack = build(specification, norm, "minimum")
    if attack.seeks_nearest:
        return run(attack, model, x, y).nearest
    # By bisection, of which the engine is a part.
    result = robustkit.attack(model, x, y, attack, batch_size=len(x))
    assert isinstance(model, Passes)
    # The engine queries a folded copy, without hooks.
    model.forwards, model.backwards = int(result.forwards.sum()), int(result.backwards.sum())
    return result.x_adv


def run(attack: Attack, model: nn.Module, x: Tensor, y: Tensor, first: Tensor | None = None) -> NearestState:
    """The last states, from the queries `first` where they are given. Rows that are done leave, as in an evaluation."""
    none = torch.full_like(y, -1)
    keys = noise.keys(0, torch.arange(len(x)))
    state = attack.init(Trials(x, y, none, none, keys, torch.zeros_like(none)))
    state = state if first is None else replace(state, query=first)
    rows, ended = torch.arange(len(x)), []

    def ask(some: Tensor, most: int | None) -> Seen:
        return answered(attack, state.take(some), model, most=most)

    while len(state):
        everything = torch.arange(len(state))
        if attack.reads_all_gradients:
            seen = ask(everything, None)
        else:
            seen = answered_by_count(attack.gradients_read(state), ask, state.query)
        state = attack.step(state, seen)
        left = ~state.done
        ended.append((rows[state.done], state.take(state.done.nonzero().flatten())))
        state, rows = state.take(left.nonzero().flatten()), rows[left]
    order = torch.cat([numbers for numbers, _ in ended]).argsort()
    last = NearestState.cat([state for _, state in ended]).take(order)
    assert isinstance(last, NearestState)
    return last


def advlib(module: str, name: str, **setting: Any) -> Peer:
    # adv-lib imports a plotting server that nothing here uses.
    sys.modules.setdefault("visdom", types.ModuleType("visdom")).__dict__.setdefault("Visdom", object)
    import importlib

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        function = getattr(importlib.import_module(f"adv_lib.attacks.{module}"), name)
        return function(model, x, y, **setting)  # type: ignore[no-any-return]

    return run


def minimal_apgd(norm: str, steps: int, radii: int) -> Peer:
    """adv-lib's bisection, of the interval from zero to the radius that holds every image."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        far = {"Linf": 1.0, "L2": x[0].numel() ** 0.5}[norm]
        peer = advlib("auto_pgd", "minimal_apgd", norm=ORDER[norm], max_eps=far / 2, n_iter=steps,
                      binary_search_steps=radii)  # fmt: skip
        return peer(model, x, y)

    return run


def torchattacks_(name: str, **setting: Any) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import torchattacks

        return getattr(torchattacks, name)(model, **setting)(x, y)  # type: ignore[no-any-return]

    return run


def foolbox_(name: str, **setting: Any) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import foolbox

        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        return getattr(foolbox.attacks, name)(**setting)(wrapped, x, y, epsilons=None)[0]  # type: ignore[no-any-return]

    return run


def one_by_one(peer: Peer) -> Peer:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([peer(model, x[row : row + 1], y[row : row + 1]) for row in range(len(x))])

    return run


class Reached(NamedTuple):
    distance: Tensor  # [N] infinite where the point is no error
    forwards: float  # per image
    backwards: float
    seconds: float


def reached(subject: Subject, norm: str, attacked: Peer) -> Reached:
    counting = Passes(subject.model).eval()
    torch.manual_seed(0)
    since = time.process_time()
    points = attacked(counting, subject.x, subject.y).detach()
    seconds = time.process_time() - since
    with torch.no_grad():
        wrong = torch.cat([subject.model(part).argmax(1) for part in points.split(100)]) != subject.y
    valid = ((points >= 0) & (points <= 1)).flatten(1).all(1)
    distance = (points.double() - subject.x.double()).flatten(1).norm(p=ORDER[norm], dim=1)
    count = len(points)
    return Reached(
        torch.where(wrong & valid, distance, torch.inf), counting.forwards / count, counting.backwards / count, seconds
    )


def shown(network: str, norm: str, name: str, tool: str, result: Reached, base: Reached) -> str:
    gap = result.distance.median() / base.distance.median() - 1
    nearer, farther = (result.distance < base.distance * 0.999).sum(), (result.distance > base.distance * 1.001).sum()
    return (
        f"| {network} | {norm} | {name} | {tool} | {result.distance.median():.4f} | {100 * gap:+.1f} % "
        f"| {int(nearer)} / {int(farther)} | {int(result.distance.isinf().sum())} | {result.forwards:.0f} "
        f"| {result.backwards:.0f} | {result.seconds:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--only", default="", help="beginning of the attacks' names")
    parser.add_argument("--norms", default="Linf,L2,L1,L0")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--alone", action="store_true", help="without the other tools")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| network | norm | attack | tool | median distance | against ours | images nearer / farther than ours "
        "| no error | F | B | CPU s |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for network in given.networks.split(","):
        subject = zoo(given.zoo, network, NETWORKS[network], given.images)
        for contest in contests(given.steps):
            if not contest.ours.startswith(given.only) or contest.norm not in given.norms.split(","):
                continue
            mine = reached(subject, contest.norm, partial(ours, specification=contest.ours, norm=contest.norm))
            print(shown(network, contest.norm, contest.ours, "robustkit", mine, mine), flush=True)
            for tool, peer in contest.peers.items() if not given.alone else ():
                other = reached(subject, contest.norm, peer)
                print(shown(network, contest.norm, contest.ours, tool, other, mine), flush=True)


if __name__ == "__main__":
    main()
