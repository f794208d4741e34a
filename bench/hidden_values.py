"""Does the default see values of the image that a threshold hides from the gradient?

The network of the masked defenses, behind functions whose gradient is exactly zero at the dark values of the image:
what `rk-7`, the default and AutoAttack leave standing, and whether the run warns.

    python bench/hidden_values.py [--images 100]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from robustkit import evaluate, load_dataset
from robustkit.masked_defenses import base_network

EPS = "0.1"
FRONTS: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda x: x,
    "x * (x > 0.05)": lambda x: x * (x > 0.05),
    "x * (x > 0.2)": lambda x: x * (x > 0.2),
    "softshrink, 0.05": lambda x: F.softshrink(x, 0.05),
    "max pooling of 2 x 2": lambda x: F.interpolate(F.max_pool2d(x, 2), scale_factor=2),
}


class Behind(nn.Module):
    """A network behind a function."""

    def __init__(self, front: Callable[[Tensor], Tensor], network: nn.Module) -> None:
        super().__init__()
        self.front, self.network = front, network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.front(x))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network, data = base_network(), load_dataset("digits")
    x, y = data.batch(range(options.images))
    print(
        "| in front | clean | rk-7 | default | autoattack | rk-7 warns | default warns |\n|---|---|---|---|---|---|---|"
    )
    for name, front in FRONTS.items():
        model, row, warned = Behind(front, network).eval(), [], []
        for attack in ("rk-7", "default", "autoattack"):
            run = evaluate(model, dataset=TensorDataset(x, y), attacks=attack, eps=EPS, samples=None)
            row.append(f"{run.results.accuracy.iloc[-1]:.0%}")
            warned.append("yes" if run.manifest["warnings"] else "no")
        clean = f"{run.results.accuracy.iloc[0]:.0%}"
        print("|", " | ".join([f"`{name}`", clean, *row, *warned[:2]]), "|", flush=True)


if __name__ == "__main__":
    main()
