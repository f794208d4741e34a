"""An exception is the user's, the model's or ours, by the frames that it passed."""

import re
from collections.abc import Callable

import pytest
import torch
from robustkit.attacks import PGD
from torch import nn

from robustkit.errors import UserError
from robustkit.host.failures import as_users_error, described_error, is_from_library
from robustkit.models.hashing import hash_tensors


class Raising(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error


class Holding(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(0), StopIteration(), MemoryError(), OSError(5, "no"), BaseException("base")]
)
def test_whatever_a_forward_raises_is_one_sentence_with_its_line(error):
    sentence = rf"test_failures\.py failed in line \d+ \(forward\): {type(error).__name__}"

    with pytest.raises(type(error)) as raised:
        Raising(error)(torch.zeros(1))

    assert re.search(sentence, str(as_users_error(raised.value)))


def test_a_layer_that_gets_the_wrong_shape_is_the_models_failure():
    with pytest.raises(RuntimeError) as raised:
        called(nn.Linear(3, 2), torch.zeros(1, 4))

    assert re.search("model failed on its input: RuntimeError: .*mat1 and mat2", str(as_users_error(raised.value)))


@pytest.mark.parametrize("error", [KeyError("weights"), RuntimeError("the table is empty")])
def test_an_exception_that_the_users_forward_raises_is_not_about_its_input(error):
    with pytest.raises(type(error)) as raised:
        Raising(error)(torch.zeros(1))

    assert not is_from_library(raised.value)


def test_an_error_of_a_layer_is_about_its_input_also_inside_a_network_of_the_user():
    with pytest.raises(RuntimeError) as raised:
        Holding(nn.Linear(3, 2))(torch.zeros(1, 4))

    assert is_from_library(raised.value)


def called(function: Callable[[torch.Tensor], object], x: torch.Tensor) -> None:
    """Call a network or a function from a frame of ours, as an oracle does."""
    exec(compile("function(x)", "oracle.py", "exec"), {"__name__": "robustkit.oracle"}, {"function": function, "x": x})


def test_our_own_errors_stay_as_they_are():
    error = UserError("mine")

    assert as_users_error(error) is error


def test_a_bug_of_ours_is_not_blamed_on_the_caller():
    with pytest.raises(AttributeError) as bug:
        hash_tensors({"a": None})

    assert as_users_error(bug.value) is None
    assert described_error(bug.value).startswith("AttributeError")


def test_a_projection_that_the_users_step_gives_a_wrong_shape_is_its_failure():
    def step(delta):
        return PGD(eps=0.1).ball.project(torch.zeros(2, 3), delta)

    with pytest.raises(RuntimeError) as raised:
        called(step, torch.zeros(2, 4))

    assert re.search(r"test_failures\.py failed in line \d+ \(step\): RuntimeError", str(as_users_error(raised.value)))


def test_an_error_whose_text_fails_is_described_by_its_kind():
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert described_error(OddError()) == "OddError"
