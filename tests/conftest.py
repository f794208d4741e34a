"""Garbage is not looked for among the tests themselves, and no example of a property has a time limit.

Only `pytest tests/test_gpu.py` sees a GPU: other tests fork processes, in which CUDA cannot be used.
"""

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" not in os.environ and not any("test_gpu" in word for word in sys.argv):  # workers inherit it
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def judged_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings judge their epochs in a blink, for tests that are not about the judge."""
    from tests.defenses.nets import judge_quickly

    judge_quickly(monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and leave what they are made of out of its later rounds.

    Tests and their modules stay until the end; to walk through all of them again and again took a fifth of the time of
    collecting them, in each worker.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """At its end Python looks for what libraries have left over, which would else seem to be leaked."""
    gc.unfreeze()
