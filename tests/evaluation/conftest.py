"""The tiny ensemble for every test here, and no rounding by many threads."""

import pytest
import torch

from robustkit.primitives import ensembles
from tests.small import TINY

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(ensembles.ENSEMBLES, "tiny", TINY)
