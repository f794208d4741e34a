"""What every attack guarantees: all checks of `robustkit.testing` on all attacks and all their norms.

A new file in attacks/ is tested here without being named.
"""

from functools import cache

import pytest
import torch

from robustkit.primitives.protocol import HookedAttack
from robustkit.primitives.registry import classes
from robustkit.testing import CHECKS, Subject

# Two busy cores: with more threads torch waits for its own workers.
torch.set_num_threads(1)

# Attacks that bring hooks step as MI-FGSM does, which is here in all its norms.
CASES = [
    (name, norm)
    for name, attack in classes().items()
    for norm in (attack.norms[:1] if issubclass(attack, HookedAttack) else attack.norms)
]
# Networks for attacks that need layers of a kind, or show more on them.
NETWORKS = {
    "fia": {"spatial": "residual cnn"},
    "ghost": {"spatial": "residual cnn"},
    "sgm": {"flat": "residual mlp", "spatial": "residual cnn"},
    "pna": {"flat": "attentive", "spatial": "attentive"},
    "tgr": {"flat": "attentive", "spatial": "attentive"},
}


@cache
def subject(name: str, norm: str) -> Subject:
    return Subject(classes()[name](1, norm), **NETWORKS.get(name, {}))


@pytest.mark.parametrize(("name", "norm"), CASES, ids=[f"{name}-{norm}" for name, norm in CASES])
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_every_attack_keeps_the_contract(check, name, norm):
    check(subject(name, norm))
