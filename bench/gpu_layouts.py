"""What the search network's form is worth on a GPU: folding, memory layout, deterministic kernels, arithmetic.

Forward passes with input gradients per second, a bare loop of eight after three to warm up, on random images: 128 of
3x224x224 for torchvision's resnet18 and resnet50, 256 of 3x32x32 for a resnet18 without its stride and pooling.

    python bench/gpu_layouts.py
"""

import copy
import time

import torch
import torchvision
from gpu import network as imagenet
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.classifier.folding import folded
from robustkit.classifier.isolation import products
from robustkit.host.environment import environment

GPU = torch.device("cuda")
NETWORKS = ("resnet18", "resnet18, 3x32x32", "resnet50")
ARITHMETIC = {"fp32": (False, False), "TF32": (True, False), "bf16": (False, True)}  # TF32, bf16
STEPS, WARM_UP, STEP_SIZE = 8, 3, 0.001


def main() -> None:
    print(f"{environment(GPU)}\n", flush=True)
    print("| network | arithmetic | as it is | channels last | folded | both | deterministic | channels last | folded "
          "| both |\n" + "|---" * 10 + "|")  # fmt: skip
    for name in NETWORKS:
        model, x = network(name)
        model, x = model.to(GPU).eval().requires_grad_(False), x.to(GPU)
        y = model(x).argmax(1)
        forms = [model, folded(model)]
        for kind, (tf32, bf16) in ARITHMETIC.items():
            speeds = [
                speed(form, x, y, tf32=tf32, bf16=bf16, deterministic=deterministic, last=last)
                for deterministic in (False, True)
                for form in forms
                for last in (False, True)
                if form is not None
            ]
            print(f"| {name} | {kind} | " + " | ".join(f"{each:,.0f}" for each in speeds) + " |", flush=True)


def network(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name != "resnet18, 3x32x32":
        return imagenet(name, tiny=False, random=True), torch.rand(128, 3, 224, 224)
    small = torchvision.models.resnet18(num_classes=10)
    small.conv1, small.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return small, torch.rand(256, 3, 32, 32)


def speed(model: nn.Module, x: Tensor, y: Tensor, *, tf32: bool, bf16: bool, deterministic: bool, last: bool) -> float:
    """Passes per second."""
    layout = torch.channels_last if last else torch.contiguous_format
    model = copy.deepcopy(model).to(memory_format=layout)

    def climbed(steps: int) -> None:
        point = x
        for _ in range(steps):
            asked = point.detach().requires_grad_()
            with torch.autocast(GPU.type, torch.bfloat16, enabled=bf16):
                logits = model(asked.to(memory_format=layout))
            grad = torch.autograd.grad(F.cross_entropy(logits.float(), y, reduction="sum"), asked)[0]
            point = (point + STEP_SIZE * grad.sign()).clamp(0, 1)
        torch.cuda.synchronize()

    with products(GPU, tf32=tf32, deterministic=deterministic):
        climbed(WARM_UP)
        since = time.perf_counter()
        climbed(STEPS)
        return len(x) * STEPS / (time.perf_counter() - since)


if __name__ == "__main__":
    main()
