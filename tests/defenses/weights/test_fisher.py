"""Fisher information against closed forms."""

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.weights.fisher import fisher
from torch import nn

from tests.defenses.doubles import Last
from tests.defenses.nets import SHORT, TRAIN, VAL, batch, changed, net, state


def test_that_of_a_softmax_layer_has_a_closed_form():
    layer = nn.Linear(3, 4)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 3, 0])

    information = fisher(layer, layer, layer, {"weight", "bias"}, [(x[:2], y[:2]), (x[2:], y[2:])])

    # The gradient of the log-likelihood in the logits is the one-hot label minus the probabilities.
    residual = torch.eye(4)[y] - layer(x).softmax(1)
    torch.testing.assert_close(information["bias"], residual.square().mean(0))
    torch.testing.assert_close(information["weight"], torch.einsum("bi,bj->ij", residual**2, x**2) / 5)


def test_it_does_not_depend_on_batches_and_does_not_change_the_network():
    network = net().train()
    before = state(network)
    one = fisher(network, network, network, {"fc.bias"}, [(batch().x, batch().y)])
    some = fisher(network, network, network, {"fc.bias"}, zip(batch().x.split(3), batch().y.split(3), strict=True))

    torch.testing.assert_close(one, some)
    assert network.bn1.training
    assert changed(network, before) == set()
    assert all(weight.grad is None for weight in network.parameters())


@pytest.mark.usefixtures("judged_quickly")
def test_a_strong_prior_around_the_start_keeps_the_weights_near_it():
    recipe = SHORT.but(epochs=1, schedule="flat", warmup=0.0, momentum=0.0, nesterov=False)
    distances = []
    for prior in ("ewc:20", "none"):
        network = net()
        watch = Last(network)
        finetune(network, TRAIN, VAL, eps=0.1, recipe=recipe.but(prior=prior), watch=watch)
        distances.append((watch.model.layer1[0].weight - net().layer1[0].weight).norm())

    assert 0 < distances[0] < distances[1]
