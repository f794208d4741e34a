"""Fisher information against closed forms."""

import torch
from robustkit.defenses import finetune
from robustkit.defenses.weights.fisher import fisher
from torch import nn

from tests.defenses.nets import SHORT, TRAIN, VAL, batch, changed, net, state


def test_of_a_softmax_layer_it_is_known():
    layer = nn.Linear(3, 4)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 3, 0])

    found = fisher(layer, layer, layer, {"weight", "bias"}, [(x[:2], y[:2]), (x[2:], y[2:])])

    # The gradient of the log-likelihood in the logits is the true class less the probabilities.
    residual = torch.eye(4)[y] - layer(x).softmax(1)
    torch.testing.assert_close(found["bias"], residual.square().mean(0))
    torch.testing.assert_close(found["weight"], torch.einsum("bi,bj->ij", residual**2, x**2) / 5)


def test_it_is_of_single_images_and_leaves_the_network_alone():
    network = net().train()
    before = state(network)
    one = fisher(network, network, network, {"fc.bias"}, [(batch().x, batch().y)])
    some = fisher(network, network, network, {"fc.bias"}, zip(batch().x.split(3), batch().y.split(3), strict=True))

    torch.testing.assert_close(one, some)
    assert network.bn1.training
    assert changed(network, before) == set()
    assert all(weight.grad is None for weight in network.parameters())


def test_a_strong_prior_around_the_start_holds_it():
    far, near = net(), net()
    recipe = SHORT.but(epochs=1, schedule="flat", warmup=0.0, momentum=0.0, nesterov=False)
    seen = {}

    class Spy:
        def __init__(self, network):
            self.network = network

        def training(self, text, share):
            seen[id(self.network)] = self.network.layer1[0].weight.detach().clone()

        def say(self, text): ...

    finetune(far, TRAIN, VAL, eps=0.1, recipe=recipe.but(prior="none"), watch=Spy(far))
    finetune(near, TRAIN, VAL, eps=0.1, recipe=recipe.but(prior="ewc:20"), watch=Spy(near))

    start = net().layer1[0].weight
    assert 0 < (seen[id(near)] - start).norm() < (seen[id(far)] - start).norm()
