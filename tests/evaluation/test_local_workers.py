"""Which device a worker process gets, and what it imports."""

import multiprocessing
import subprocess
import sys

import pytest
import torch
from robustkit.attacks import PGD
from torch import nn

from robustkit.errors import UserError
from robustkit.evaluation import local_workers
from robustkit.evaluation.lanes import Opening, sending
from robustkit.evaluation.local_workers import LocalWorkers
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.worker import work
from tests.problems import problem


@pytest.mark.parametrize(
    ("device", "gpus", "own"),
    [
        ("auto", 2, ["cuda:0", "cuda:1", "cuda:0"]), ("cuda", 3, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:1", 2, ["cuda:1"] * 3), ("auto", 0, ["auto"] * 3), ("cpu", 2, ["cpu"] * 3),
    ],
)  # fmt: skip
def test_each_worker_gets_a_gpu_in_turn(monkeypatch, device, gpus, own):
    made = problem("linear", 1, 8, 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(local_workers, "LocalWorker", lambda request, opening: request.device)
    workers = LocalWorkers(EvaluationRequest(made.model, attacks=PGD(0.1), device=device))

    assert [workers.start(number, Opening()) for number in range(3)] == own


def test_a_model_that_cannot_be_pickled_is_refused_with_the_fix():
    model = problem("linear", 1, 8, 8).model
    model.register_forward_hook(lambda *_: None)
    workers = LocalWorkers(EvaluationRequest(model, attacks=PGD(0.1)))

    with pytest.raises(UserError, match="name models and data by strings, or leave out workers"):
        workers.start(0, Opening())


def test_a_script_without_a_guard_is_told_so_in_one_line():
    # Multiprocessing's text of a dozen lines ended with "name models and data by strings".
    text = "An attempt has been made to start a new process before it has finished its bootstrapping phase.\n\n..."
    with pytest.raises(UserError, match=r'ran the whole script: .* "__main__":') as error, sending("workers"):
        raise RuntimeError(text)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chosen", [None, "spawn"])
def test_how_the_callers_own_processes_start_stays_open(chosen):
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        multiprocessing.set_start_method(chosen, force=True)
        with local_workers._start_method_kept():
            multiprocessing.get_start_method()  # as each start of a process asks: it chooses, for good

        assert multiprocessing.get_start_method(allow_none=True) == chosen
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_a_pipe_that_breaks_in_code_of_the_user_is_told_and_not_taken_for_the_end():
    """As a print of an attack whose reader has left: the worker ended in silence, and was started again without end."""

    class Printing(nn.Module):
        def forward(self, x):
            raise BrokenPipeError(32, "Broken pipe")

    sent = []
    pipe = type("Pipe", (), {"send": lambda _, message: sent.append(message)})()
    data = (torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64))
    work(pipe, EvaluationRequest(Printing(), dataset=data, attacks=PGD(0.1), device="cpu"), Opening())

    assert "BrokenPipeError" in sent[0].text
    assert sent[0].mendable


def test_a_worker_imports_nothing_that_makes_tables_or_corruptions():
    idle = "{'pandas', 'scipy', 'jinja2', 'matplotlib'}"
    code = f"import sys, robustkit.evaluation.worker; print(*{idle} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
