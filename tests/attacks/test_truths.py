"""The nearest error of a linear classifier is known in closed form; every attack that looks for it comes within 1 %.

An attack that is added is asked for its settings here.
"""

import pytest
import torch
from torch import Tensor, nn

from robustkit.primitives.ball import NormName
from robustkit.primitives.protocol import Trials
from robustkit.primitives.registry import build, classes
from tests.attacks.driving import last_state, untargeted
from tests.attacks.linear import linear

# Budgets and step sizes that suit distances of some hundredths. Those without settings walk along families of images,
# or change few values, which has tests of its own.
SETTINGS = {
    "alma": {"L2": "steps=80,first_distance=0.02", "L1": "steps=200,first_distance=0.02"},
    "boundary": {"L2": "queries=200"},
    "brendel_bethge": dict.fromkeys(("L2", "Linf", "L1"), "steps=10,radius=0.03"),
    "cw": {"L2": "steps=60,step_size=0.003,searches=4"},
    "ddn": {"L2": "steps=200,loss=margin"},
    "deepfool": dict.fromkeys(("L2", "Linf"), "overshoot=0.001"),
    "ead": {"L1": "steps=50"},
    "fab": dict.fromkeys(("Linf", "L2", "L1"), "steps=40"),
    "fmn": dict.fromkeys(("L2", "Linf", "L1"), "steps=100"),
    "geoda": {
        "L2": "queries=300,frequencies=1.0,decay=0.95",
        "Linf": "queries=150,frequencies=1.0,decay=0.95",
        "L1": "queries=200,frequencies=1.0,decay=0.95",
    },
    "hopskipjump": {"L2": "queries=500,samples=20", "Linf": "queries=300,samples=20"},
    # The weights' ratio begins near the one at the nearest error, about half the slope's dual norm.
    "pdpgd": {
        "L2": "steps=200,step_size=0.05,dual_step_size=0.004,first_ratio=3",
        "Linf": "steps=300,step_size=0.03,dual_step_size=0.007,first_ratio=10",
        "L1": "steps=200,step_size=0.1,dual_step_size=0.006,first_ratio=1",
    },
    "rays": {"Linf": "queries=100"},
    "sign_opt": {"L2": "queries=250,samples=10"},
    "superdeepfool": {"L2": "steps=30"},
    "surfree": {"L2": "queries=150,frequencies=1.0"},
}
# Labels around a point tell a normal of few values with fewer queries.
BY_LABELS = ("boundary", "geoda", "hopskipjump", "rays", "sign_opt", "surfree")
FAMILIES = {"contrast_reduction", "gaussian_blur", "gaussian_noise", "salt_and_pepper", "uniform_noise"}
SPARSE = {"jsma", "sigma_zero", "vfga"}
# What is left after budgets that a test can afford; `LONGER` has those after which these attacks come within 1 %, too.
# EAD minimises an elastic net, of which the L1 distance is a part.
WITHIN = {("geoda", "L2"): 0.02, ("ead", "L1"): 0.07, ("hopskipjump", "L2"): 0.02, ("hopskipjump", "Linf"): 0.02}

LONGER = {
    "ead": {"L1": "steps=1000,shrinkage=0.1"},
    "geoda": dict.fromkeys(("L2", "Linf", "L1"), "queries=4000,frequencies=1.0,decay=0.9,spread=0.1"),
    "hopskipjump": dict.fromkeys(("L2", "Linf"), "queries=6000"),
}


def test_every_attack_for_the_nearest_error_is_here_in_each_of_its_norms():
    seeking = {name: kind for name, kind in classes().items() if kind.seeks_nearest}

    assert {*seeking} == {*SETTINGS} | FAMILIES | SPARSE
    assert all({*seeking[name].norms} - {"L0"} == {*SETTINGS[name]} for name in SETTINGS)


@pytest.mark.parametrize(("name", "norm"), [(name, norm) for name, settings in SETTINGS.items() for norm in settings])
def test_the_distance_is_that_of_the_closed_form(name, norm):
    ratio = _ratio(f"{name}:{SETTINGS[name][norm]}", norm, seed=0, values=6 if name in BY_LABELS else 20)

    assert (ratio > 1 - 1e-3).all()  # rounding, where the boundary is near
    assert ratio.median() < 1 + WITHIN.get((name, norm), 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "norm"), [(name, norm) for name, settings in LONGER.items() for norm in settings])
def test_attacks_that_need_a_longer_search_come_within_one_per_cent_too(name, norm, seed):
    ratio = _ratio(f"{name}:{LONGER[name][norm]}", norm, seed)

    assert (ratio > 1 - 1e-3).all()
    assert ratio.median() < 1.01


def _ratio(specification: str, norm: NormName, seed: int, values: int = 20) -> Tensor:
    """Of each image, the distance that the attack finds over that of the closed form."""
    made = linear(2, values, count=8, seed=seed)
    none = torch.full_like(made.y, -1)
    keys = torch.arange(len(made.x)) * 1_000_003 + 7
    method = build(specification, norm, 0.1)
    state = last_state(method, made.model, Trials(made.x, made.y, none, none, keys, torch.zeros_like(none)))
    further = 1e-4 if specification.startswith("deepfool") else 0.0  # its steps cross the boundary by as much
    return (state.distance - further) / made.distance[norm].double()


# Brendel-Bethge begins at noise, which has another order.
DRAW_NOTHING = [
    (name, norm)
    for name, settings in SETTINGS.items()
    for norm in settings
    if classes()[name].sees == "gradients" and name != "brendel_bethge"
]


@pytest.mark.parametrize(("name", "norm"), DRAW_NOTHING)
def test_shifted_logits_and_permuted_values_leave_the_distance_as_it_is(name, norm):
    made, order = linear(3, count=6), torch.arange(20).flip(0)
    layer = nn.Linear(20, 3)
    with torch.no_grad():
        layer.weight.copy_(made.model[0].weight[:, order])
        layer.bias.copy_(made.model[0].bias + 4)
    method = build(f"{name}:steps=8", norm, 0.1)
    plain, other = (
        last_state(method, model, untargeted(x, made.y)).distance
        for model, x in ((made.model, made.x), (layer, made.x[:, order]))
    )

    assert plain.isfinite().any()
    assert torch.allclose(plain, other, rtol=1e-2)
