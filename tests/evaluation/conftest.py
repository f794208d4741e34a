"""Short ensembles for every test here, and no rounding by many threads."""

import re

import pytest
import torch

from robustkit.primitives import ensembles
from tests.small import TINY

torch.set_num_threads(1)
_FEW = {"steps": 2, "queries": 4, "shrink_over": 4, "restarts": 2, "start_radius": 2}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(ensembles.ENSEMBLES, "tiny", TINY)


@pytest.fixture(scope="module")
def brief():
    """The name of an ensemble with the measures and thresholds of the default, and few steps after its first member.

    More images stand at its end, so it warns of masked gradients wherever the default does.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        for norm in ("Linf", "L2", "L1"):
            first, *others = ensembles.stages("default", norm)
            monkeypatch.setitem(ensembles.IN_NORM, ("brief", norm), (first, *map(_shortened, others)))
        monkeypatch.setitem(ensembles.ENSEMBLES, "brief", ensembles.stages("default", "Linf"))
        yield "brief"


def _shortened(stage):
    text = re.sub(r"(\w+)=\d+(?![.\d])", lambda each: f"{each[1]}={_FEW[each[1]]}" if each[1] in _FEW else each[0],
                  stage.specification)  # fmt: skip
    return stage._replace(specification=text)
