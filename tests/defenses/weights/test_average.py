"""The average of the weights."""

import torch
from robustkit.defenses.weights.average import Average

from tests.defenses.nets import batch, changed, net, state, stepper


def test_it_shares_no_storage_with_the_network():
    network = net()
    average = Average(network, 0.9)
    kept = {name: value.clone() for name, value in average.weights.items()}
    stepper(network).step([batch()], 1.0)

    assert all(torch.equal(average.weights[name], value) for name, value in kept.items())

    other = net()
    average.into(other)
    own = {value.untyped_storage().data_ptr() for value in average.weights.values()}
    assert not own & {value.untyped_storage().data_ptr() for value in other.state_dict().values()}
    assert not own & {value.untyped_storage().data_ptr() for value in network.state_dict().values()}


def test_writing_it_into_a_network_leaves_the_buffers():
    network = net()
    average = Average(network, 0.9)
    stepper(network).step([batch()], 1.0)
    before = state(network)
    average.into(network)

    assert changed(network, before) == {name for name, _ in network.named_parameters()}


def test_it_follows_its_definition_and_forgets_the_start_soon():
    network = net()
    average = Average(network, 0.5)
    expected = network.fc.weight.detach().clone()
    for decay in (2 / 11, 3 / 12, 4 / 13):
        with torch.no_grad():
            network.fc.weight.add_(1)
        average.update(network)
        expected = decay * expected + (1 - decay) * network.fc.weight.detach()

    torch.testing.assert_close(average.weights["fc.weight"], expected)


def test_late_steps_keep_the_decay_that_was_asked_for():
    network = net()
    average = Average(network, 0.5)
    average.load(average.weights, 100)
    with torch.no_grad():
        network.fc.bias.add_(1)
    average.update(network)

    torch.testing.assert_close(average.weights["fc.bias"], network.fc.bias.detach() - 0.5)


def test_frozen_weights_are_the_same_bits():
    network = net()
    average = Average(network, 0.37)
    for _ in range(20):
        average.update(network)

    assert all(torch.equal(average.weights[name], weight) for name, weight in network.named_parameters())
