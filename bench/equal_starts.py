"""Brendel & Bethge's attack against foolbox's, both from the same first errors and with the same radii.

The first error of an image is noise, or the blend of image and noise with which foolbox begins by itself. Each tool
then halves the way back to the boundary ten times and takes as many steps along it. `nearest.py` says how points are
judged.

    python bench/equal_starts.py --zoo DIR [--norms L1] [--networks cnn_a_cifar] [--starts noise] [--radii 0.001,0.01]
"""

import argparse
from functools import partial
from itertools import product
from pathlib import Path

import torch
from nearest import NETWORKS, Peer, Reached, reached, run, shown
from subjects import zoo
from torch import Tensor, nn

from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack
from robustkit.primitives.registry import build
from robustkit.primitives.rows import along

DRAWS = 1000  # of noise until it is an error, and parts of the way back to the image, as foolbox has them
COLUMNS = ("network", "norm", "first errors, radius", "tool", "median distance", "against ours",
           "images nearer / farther than ours", "no error", "F", "B", "CPU s")  # fmt: skip


def first_errors(model: nn.Module, x: Tensor, y: Tensor, kind: str) -> Tensor:
    """`[N, *S]` uniform noise that is an error, or its blend with the image that is just one."""
    chosen, open_ = torch.zeros_like(x), torch.ones(len(x), dtype=torch.bool)
    keys = noise.keys(0, torch.arange(len(x)))
    for draw in range(DRAWS):
        values = noise.uniform(keys, torch.full_like(y, draw), x.shape[1:]).to(x)
        chosen = torch.where(along(open_, x), values, chosen)
        open_ &= model(chosen).argmax(1) == y
        if not open_.any():
            break
    assert not open_.any(), "no noise is an error for some image; leave its network out"
    if kind == "noise":
        return chosen
    blend, open_ = chosen.clone(), torch.ones_like(open_)
    for part in range(1, DRAWS + 1):
        mixed = (1 - part / DRAWS) * x + part / DRAWS * chosen
        error = model(mixed).argmax(1) != y
        blend = torch.where(along(open_ & error, x), mixed, blend)
        open_ &= ~error
    return blend


def foolbox_(norm: str, steps: int, radius: float, first: Tensor) -> Peer:
    """Image by image, as its trust regions grow with the number of images."""

    def attacked(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import foolbox

        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        kind = getattr(foolbox.attacks, f"{norm.replace('Linf', 'Linfinity')}BrendelBethgeAttack")
        attack = kind(steps=steps, lr=radius)
        wrong = foolbox.criteria.Misclassification
        return torch.cat([
            attack.run(wrapped, image, wrong(label), starting_points=start)
            for image, label, start in zip(x.split(1), y.split(1), first.split(1), strict=True)
        ]).clamp(0, 1)  # fmt: skip

    return attacked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--norms", default="L1,L2,Linf,L0")
    parser.add_argument("--networks", default="cnn_a_cifar,smallcnn_mnist")
    parser.add_argument("--starts", default="noise,blend")
    parser.add_argument("--radii", default="0.001,0.01")
    parser.add_argument("--settings", default="", help="of ours, after a semicolon each, for example momentum=0")
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--alone", action="store_true", help="without foolbox")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for network, norm, kind in product(given.networks.split(","), given.norms.split(","), given.starts.split(",")):
        subject = zoo(given.zoo, network, NETWORKS[network], given.images)
        with torch.no_grad():
            first = first_errors(subject.model, subject.x, subject.y, kind)
        for radius in map(float, given.radii.split(",")):
            tools: dict[str, Peer] = {}
            for setting in given.settings.split(";"):
                text = f"brendel_bethge:steps={given.steps},radius={radius}" + (f",{setting}" if setting else "")
                attack = build(text, norm, "minimum")
                tools[f"robustkit {setting}".strip()] = partial(ours, attack=attack, first=first)
            if not given.alone:
                tools["foolbox"] = foolbox_(norm, given.steps, radius, first)
            base: Reached | None = None
            for tool, peer in tools.items():
                result = reached(subject, norm, peer)
                base = result if base is None else base
                print(shown(network, norm, f"{kind}, {radius}", tool, result, base), flush=True)


def ours(model: nn.Module, x: Tensor, y: Tensor, *, attack: Attack, first: Tensor) -> Tensor:
    return run(attack, model, x, y, first).nearest


if __name__ == "__main__":
    main()
