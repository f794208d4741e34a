"""What a Trace over all layers of torchvision's resnet18 adds to a forward and backward pass.

The pass is a training's, with the gradient of the summed logits in all weights and the input, or with --attack an
attack's: frozen weights, the input's gradient alone. Each way of tracing runs in
turn with the bare pass beside it, in one process and thread, in CPU time; printed is the smallest time of each over
the smallest of the bare pass, and the ratio of medians. What allocates moves with the machine's load: read both.

    python bench/trace.py [--rounds 9] [--batch 8] [--size 224] [--attack]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torchvision
from torch import Tensor, nn

from robustkit.nethook import Trace


def norms(part: Tensor, *, name: str, call: int) -> Tensor:
    return part.flatten(1).norm(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--attack", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # The identity is a layer whose output is the input: a trace that reads gradients then asks for this one, too.
    net = nn.Sequential(nn.Identity(), torchvision.models.resnet18(num_classes=10)).eval()
    net.requires_grad_(not chosen.attack)
    x = torch.randn(chosen.batch, 3, chosen.size, chosen.size, requires_grad=True)
    wanted = [x] if chosen.attack else [x, *net.parameters()]

    def plain() -> AbstractContextManager[object]:
        return nullcontext()

    ways: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "bare pass": plain,
        "hooks alone (output=False)": lambda: Trace(net, output=False),
        "outputs, copied": lambda: Trace(net),
        "outputs, clone=False": lambda: Trace(net, clone=False),
        "inputs and outputs, copied": lambda: Trace(net, input=True),
        "norms per image": lambda: Trace(net, reduce=norms),
    }
    if chosen.attack:
        # Beside the gradients of weights these would be a second backward pass.
        ways["gradients, output=False"] = lambda: Trace(net, output=False, grad=True)
        ways["outputs and gradients"] = lambda: Trace(net, grad=True)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(chosen.rounds + 1):
        for way, context in ways.items():
            since = time.process_time()
            with context() as trace:
                loss = net(x).sum()
                if isinstance(trace, Trace) and "gradients" in way:
                    trace.grad(loss)
                else:
                    torch.autograd.grad(loss, wanted)
            if number:  # the first round warms up
                times[way].append(time.process_time() - since)
    bare = times["bare pass"]
    print(f"resnet18, {chosen.batch} images of {chosen.size} x {chosen.size}, {chosen.rounds} rounds, 1 thread")
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, Python {platform.python_version()},")
    print(f"{platform.processor() or platform.machine()}; bare pass {1000 * min(bare):.0f} ms")
    for way, spent in times.items():
        least, middle = min(spent) / min(bare), statistics.median(spent) / statistics.median(bare)
        print(f"{way:30} {least:6.3f}   median {middle:6.3f}")


if __name__ == "__main__":
    main()
