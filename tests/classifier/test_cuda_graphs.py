"""`--cuda-graphs`: each replay writes its answers into the same memory, here as compiled code that does so on a CPU."""

from functools import partial

import pytest
import torch
from functorch.compile import make_boxed_func
from robustkit.attacks import APGD, FAB
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from robustkit.classifier.classifier import Classifier
from robustkit.engine.scheduler import run
from tests.compiling import compiles
from tests.problems import jobs_of, problem, same


def replaying(modes, graph, inputs, **options):
    """Compiled code whose forward and backward passes overwrite their last results."""
    modes.append(options.pop("mode", None))

    def compiled(part, _):
        held = {}

        def replay(*values):
            return tuple(written(held, place, each) for place, each in enumerate(part(*values)))

        return make_boxed_func(replay)

    return aot_autograd(fw_compiler=compiled, bw_compiler=compiled)(graph, inputs)


def written(held, place, result):
    """The result in the memory of the last one."""
    if not isinstance(result, Tensor):
        return result
    return held.setdefault((place, result.shape), result.clone()).copy_(result)


@compiles
@pytest.mark.parametrize("attack", [APGD(0.03, "L2", steps=6), FAB(0.05, "L2", steps=4)])
def test_the_memory_of_a_replay_is_written_again_and_outcomes_are_those_without(monkeypatch, attack):
    made, modes = problem("cnn", 1, 8, 8, count=20), []
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=partial(replaying, modes)))
    ended = []
    for options in ({}, {"cuda_graphs": True}):
        with Classifier(made.model, fold=False, **options).session(made.x) as session:
            outcomes = run(session, attack, jobs_of(made), slots=16)
            ended.append(sorted(outcomes, key=lambda outcome: outcome.sample))

    assert all(same(*pair) for pair in zip(*ended, strict=True))
    assert set(modes) <= {"reduce-overhead"}
