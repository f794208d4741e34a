"""Short ensembles for every test here, and no rounding by many threads."""

from contextlib import contextmanager

import pytest
import torch

from robustkit.checks import RULES
from robustkit.primitives import ensembles
from tests.small import TINY, shortened

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


@contextmanager
def ensemble(name, members):
    """The name of an ensemble of these members in each norm, while the context lasts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for norm, stages in members.items():
            monkeypatch.setitem(ensembles.IN_NORM, (name, norm), tuple(stages))
            monkeypatch.setitem(ensembles.ENSEMBLES, name, tuple(stages))
        yield name


@pytest.fixture(scope="module")
def brief():
    """The name of an ensemble with the measures and thresholds of the default, and few steps after its first member.

    More images stand at its end, so it warns of masked gradients wherever the default does.
    """
    members = {}
    for norm in ("Linf", "L2", "L1"):
        first, *others = ensembles.stages("default", norm)
        members[norm] = (first, *map(shortened, others))
    with ensemble("brief", members) as name:
        yield name
