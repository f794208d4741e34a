"""PGD on a GPU by robustkit, torchattacks, foolbox and a bare loop, each opened once and then run again and again.

What a tool does once for a model (robustkit's checks, folding and compilation) is its start. A run takes images to
verdicts, as in `peers.py`. The arithmetic of the other tools is the caller's, so each of them has two rows: in full
fp32, and with TF32 in convolutions and matrix products, which torch allows in convolutions by default. robustkit always
judges in full fp32.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from peers import Runner, Task, bare, foolbox, torchattacks
from robustkit.attacks import PGD
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import Classifier
from robustkit.engine.jobs import Job
from robustkit.engine.scheduler import run

Opened = Callable[[Task], Tensor]  # -> [N] bool, still classified correctly
Tool = Callable[[nn.Module, Task], AbstractContextManager[Opened]]


class Row(NamedTuple):
    name: str
    tool: Tool
    tf32: bool = False


# How robustkit searches there.
SEARCHES: dict[str, dict[str, bool]] = {"fp32": {}, "TF32": {"tf32": True}, "bf16": {"bf16": True}}


def other(runner: Runner) -> Tool:
    """A tool that keeps nothing between runs."""

    @contextmanager
    def opened(model: nn.Module, task: Task) -> Iterator[Opened]:
        yield partial(runner, model)

    return opened


def robustkit(**options: bool) -> Tool:
    """robustkit's own PGD in one session, as an evaluation runs it: clean images, search, verdicts."""

    @contextmanager
    def opened(model: nn.Module, task: Task) -> Iterator[Opened]:
        with Classifier(model, **options).session(task.x, task.seed) as session:

            def robust(task: Task) -> Tensor:
                pgd = PGD(eps=task.eps, steps=task.steps, step_size=task.step_size)
                y = task.y.tolist()
                kept = session.clean_verdicts(task.x, range(len(y))).labels == task.y.cpu()
                jobs = [Job(number, x, y[number]) for number, x in enumerate(task.x) if kept[number]]
                for outcome in run(session, pgd, jobs, slots=task.batch, seed=task.seed):
                    kept[outcome.sample] = not outcome.success
                return kept

            yield robust

    return opened


@contextmanager
def graphed(model: nn.Module, task: Task) -> Iterator[Opened]:
    """The bare loop with one step as a CUDA graph: what launching kernels one by one costs. Full batches only."""
    x, y = task.x[: task.batch].clone(), task.y[: task.batch].clone()
    low, high = (x - task.eps).clamp(min=0), (x + task.eps).clamp(max=1)
    point = x.clone()

    def step() -> None:
        asked = point.detach().requires_grad_()
        grad = torch.autograd.grad(F.cross_entropy(model(asked), y, reduction="sum"), asked)[0]
        point.copy_((point + task.step_size * grad.sign()).clamp(low, high))

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):  # torch's documentation asks for a few steps before the capture
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replayed(task: Task) -> Tensor:
        for images, labels in zip(task.x.split(task.batch), task.y.split(task.batch), strict=True):
            for held, given in ((x, images), (y, labels), (point, images)):
                held.copy_(given)
            low.copy_((x - task.eps).clamp(min=0))
            high.copy_((x + task.eps).clamp(max=1))
            for _ in range(task.steps):
                graph.replay()
        return torch.ones(len(task.y), dtype=torch.bool)

    yield replayed


def in_bf16(model: nn.Module, task: Task) -> Tensor:
    """The bare loop under bf16 autocast."""
    with torch.autocast(task.x.device.type, torch.bfloat16):
        return bare(model, task)


ROWS = (
    Row("bare loop", other(bare)),
    Row("robustkit", robustkit()),
    Row("torchattacks", other(torchattacks)),
    Row("robustkit --tf32", robustkit(tf32=True)),
    Row("robustkit --bf16", robustkit(bf16=True)),
    Row("torchattacks, TF32", other(torchattacks), tf32=True),
    Row("bare loop, TF32", other(bare), tf32=True),
    Row("bare loop, bf16", other(in_bf16)),
    Row("foolbox", other(foolbox)),
    Row("foolbox, TF32", other(foolbox), tf32=True),
    Row("bare loop, CUDA graph", graphed),
)
COMPILED = (  # apart, because compiling takes long
    Row("robustkit --compile", robustkit(compile=True)),
    Row("robustkit --cuda-graphs", robustkit(cuda_graphs=True)),
    Row("robustkit --bf16 --compile", robustkit(bf16=True, compile=True)),
)
