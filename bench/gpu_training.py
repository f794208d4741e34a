"""One process of the data-parallel fine-tuning that `bench/gpu.py` times; `torchrun` starts it.

Writes JSON: of each epoch the seconds without validation, and the loss.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torchvision
from robustkit.defenses import Recipe, finetune
from torch import nn

from robustkit.host.processes import own_device


def network(tiny: bool) -> nn.Module:
    torch.manual_seed(0)
    if not tiny:
        return torchvision.models.resnet18(num_classes=10)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(options.images + 100, 3, 32, 32, generator=generator)
    y = torch.randint(10, (len(x),), generator=generator)
    model = network(options.tiny).to(own_device(torch.device(options.device)))
    # With frozen statistics the result does not depend on the number of processes.
    recipe = Recipe(
        epochs=2, batch=options.batch, attack="pgd:steps=7", bn="frozen", lr=1e-2, select="pgd:steps=1", eps_warmup=0.0,
        guard=False, bf16=options.bf16,
    )  # fmt: skip
    tuned = finetune(model, (x[100:], y[100:]), (x[:100], y[:100]), eps="8/255", recipe=recipe, progress=False)
    if os.environ.get("RANK", "0") == "0":
        history = {name: list(tuned.history[name]) for name in ("seconds", "loss")}
        options.out.write_text(json.dumps(history))


if __name__ == "__main__":
    main()
