"""Short ensembles for every test here, and no rounding by many threads."""

import pytest
import torch

from robustkit.checks import RULES
from robustkit.primitives import ensembles
from tests.small import TINY, short_default

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(ensembles.ENSEMBLES, "tiny", TINY)


@pytest.fixture
def _no_straight_through(monkeypatch):
    """Survivors are not attacked through operations that stop gradients, which takes a second for each model."""
    monkeypatch.setattr(
        "robustkit.checks.register.RULES", tuple(rule for rule in RULES if rule.name != "straight_through")
    )


@pytest.fixture(scope="module")
def brief():
    """The name of the default ensemble with few steps after its first member."""
    with short_default() as name:
        yield name
