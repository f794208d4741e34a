import pytest
import torch
from torch import nn

from robustkit import UserError, masked_defenses
from robustkit.masked_defenses import fit, zoo
from tests.diagnosis.nets import base


@pytest.mark.parametrize("name", ["quantised", "binarised", "softmax"])
def test_a_defense_is_added_to_a_copy(name):
    network = base()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    names = [key for key, _ in network.named_modules()]
    masked_defenses.build(name, network)

    assert [key for key, _ in network.named_modules()] == names
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", ["noisy", "smoothed"])
def test_building_twice_gives_the_same_network_and_draws_no_global_numbers(name, monkeypatch):
    monkeypatch.setattr(zoo, "fit", lambda network, **settings: fit(network, **{**settings, "epochs": 1}))
    first, state = masked_defenses.build(name, base()), torch.random.get_rng_state()
    second = masked_defenses.build(name, base())

    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "network", "sentence"),
    [("quantized", nn.ReLU(), "quantised"), ("detached", nn.Linear(64, 10), "no activation")],
)
def test_a_defense_that_cannot_be_built_is_an_error_that_says_why(name, network, sentence):
    with pytest.raises(UserError, match=sentence):
        masked_defenses.build(name, network)
