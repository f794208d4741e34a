"""A sample of the layers of bench/exactness.py: answers that depend on no place, no neighbour and no batch size."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Threads that divide no batch of 64 evenly, so that the ends of their parts fall into single rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def bench(monkeypatch) -> Iterator[None]:
    """The scripts of bench/, forgotten afterwards, because models of other tests import another `layers`."""
    monkeypatch.syspath_prepend(BENCH)
    before = set(sys.modules)
    yield
    for name in {"exactness", "layers"} - before:
        sys.modules.pop(name, None)


def test_a_session_answers_alike_in_every_place_and_size(three_threads, bench):
    from exactness import tried
    from layers import LAYERS

    ends = [layer for layer in LAYERS if layer.kind == "activation" and layer.shape == (1251,)]
    for layer in (*ends[::3], *LAYERS[::120]):
        assert tried(layer)["session"] == 0, (layer.kind, layer.shape)
