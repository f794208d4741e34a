"""The moving average of the weights."""

import pytest
import torch
from robustkit.defenses.weights.average import Average

from tests.defenses.nets import batch, changed, net, state, stepper


def storages(tensors) -> set[int]:
    return {value.untyped_storage().data_ptr() for value in tensors}


def test_it_shares_no_storage_with_a_network():
    network, other = net(), net()
    average = Average(network, 0.9)
    before = {name: value.clone() for name, value in average.weights.items()}
    stepper(network).step([batch()], 1.0)
    average.copy_to(other)

    assert all(torch.equal(average.weights[name], value) for name, value in before.items())
    own = storages(average.weights.values())
    assert not own & storages(other.state_dict().values())
    assert not own & storages(network.state_dict().values())


def test_copying_it_to_a_network_leaves_the_buffers():
    network = net()
    average = Average(network, 0.9)
    stepper(network).step([batch()], 1.0)
    before = state(network)
    average.copy_to(network)

    # A bias before BatchNorm has a gradient of nothing but rounding: on some processors it is zero, and the bias stays.
    assert changed(network, before) | {"layer1.0.bias"} == {name for name, _ in network.named_parameters()}


@pytest.mark.parametrize(("steps", "decays"), [(0, (2 / 11, 3 / 12, 4 / 13)), (100, (0.5,))])
def test_it_follows_its_definition(steps, decays):
    # The first steps have a smaller decay than the one that was asked for.
    network = net()
    average = Average(network, 0.5)
    average.load(average.weights, steps)
    expected = network.fc.weight.detach().clone()
    for decay in decays:
        with torch.no_grad():
            network.fc.weight.add_(1)
        average.update(network)
        expected = decay * expected + (1 - decay) * network.fc.weight.detach()

    torch.testing.assert_close(average.weights["fc.weight"], expected)


def test_frozen_weights_are_the_same_bits():
    network = net()
    average = Average(network, 0.37)
    for _ in range(20):
        average.update(network)

    assert all(torch.equal(average.weights[name], weight) for name, weight in network.named_parameters())
