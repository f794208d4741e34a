"""The folded view that the inner attack queries."""

from types import SimpleNamespace

import pytest
import torch
from robustkit.defenses.weights.batchnorm import modes, statistics_frozen
from robustkit.defenses.weights.folding import fold
from robustkit.defenses.weights.split import split
from torch import nn

from robustkit.models.preprocessing import Normalised
from tests.defenses.doubles import Activated
from tests.defenses.nets import Net, batch, changed, digits, net, state, stepper

X = digits(0, 16)[0]


def logits_and_gradient(network) -> tuple[torch.Tensor, torch.Tensor]:
    x = X.clone().requires_grad_()
    logits = network(x)
    return logits.detach(), torch.autograd.grad(logits.logsumexp(1).sum(), x)[0]


def assert_alike(view, network) -> None:
    with modes(network, "eval"):
        for folded, own in zip(logits_and_gradient(view), logits_and_gradient(network), strict=True):
            torch.testing.assert_close(folded, own, atol=1e-5 * max(1, own.abs().max().item()), rtol=0)


@pytest.mark.parametrize("wrap", [lambda network: network, lambda network: Normalised(network, [0.3], [0.4])])
def test_logits_and_input_gradients_are_the_networks(wrap):
    network = wrap(net())

    assert_alike(fold(network, X), network)


def test_a_frozen_and_split_network_is_folded_too():
    network = net()
    with split(network), statistics_frozen([network]):
        network.bn1.weight.data.mul_(1.5)

        assert_alike(fold(network, X), network)


def test_a_refreshed_view_has_the_weights_of_a_step():
    network = net()
    view, taker = fold(network, X), stepper(network)
    for first in (0, 32):
        taker.step([batch(first, 32)], 1.0)
    view.refresh()

    assert_alike(view, network)


class WithoutGradient(nn.Module):
    """Rounds images that are bright enough, with the gradient of the identity."""

    def __init__(self, brightness: float) -> None:
        super().__init__()
        self.body, self.brightness = net(), brightness

    def forward(self, x):
        with torch.no_grad():
            change = torch.round(x * 4) / 4 - x
        return self.body(x + change * (x.mean((1, 2, 3), keepdim=True) > self.brightness))


@pytest.mark.parametrize("brightness", [-1.0, 2.0], ids=["of all images", "of other images than those compared"])
def test_a_network_whose_gradients_a_trace_would_lose_is_not_folded(brightness):
    # The inner attack had a gradient of zero.
    assert fold(net(), X) is not None
    assert fold(WithoutGradient(brightness), X) is None


class OwnState(nn.Module):
    """A network whose forward reads more than layers: its inner attack queried what this was before the first step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.kind, self.temperature, self.settings = net(), kind, 1.0, {"shift": [0.0]}
        self.settings["itself"], self.config, self.seen = self.settings, SimpleNamespace(by=1.0), None
        self.register_buffer("centre", torch.zeros(1))
        self.scale, self.plain = nn.Parameter(torch.ones(10)), torch.zeros(1)

    def forward(self, x):
        if self.training:
            self.centre = 0.5 * self.centre + 0.5 * x.mean().detach()
        shift = 2 * self.plain if self.kind == "tensor" else self.settings["shift"][0]
        self.seen = x
        logits = self.body(x - self.centre + shift) / self.temperature * self.config.by
        return logits * (self.scale / self.scale.norm()) if self.kind == "weights" else logits


def step(network: OwnState) -> None:
    """What a step of training may change."""
    with torch.no_grad():
        network.scale += torch.arange(10)
    if network.kind == "number":
        network.temperature *= 3
    if network.kind == "object":
        network.config.by *= 3
    if network.kind == "stride":
        network.body.conv1.padding = (2, 2)
    if network.kind == "hook" and not network._forward_hooks:
        network.register_forward_hook(lambda module, inputs, output: 2 * output)
    if network.kind == "list":
        network.settings["shift"][0] += 1
    if network.kind == "buffer":
        network.train()(X + 5)
        network.eval()
    network.seen = None


@pytest.mark.parametrize("kind", ["number", "list", "buffer", "weights", "object", "stride", "hook"])
def test_what_a_forward_reads_is_as_it_is_now(kind):
    network = OwnState(kind).eval()
    view = fold(network, X)
    assert view is not None
    assert network.seen is None  # and not what a trace has in its place
    before = logits_and_gradient(network)[0]
    for _ in range(2):
        step(network)
        view.refresh()
        assert not torch.allclose(logits_and_gradient(network)[0], before)
        assert_alike(view, network)


def test_a_network_that_computes_with_tensors_of_its_own_is_not_folded():
    # The trace would keep what it computed.
    assert fold(OwnState("tensor").eval(), X) is None


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_weights_and_biases_may_be_missing(affine, biased):
    norm = nn.BatchNorm2d(4, affine=affine)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, bias=biased), norm, nn.Flatten(), nn.Linear(144, 10)).eval()
    view = fold(network, X)
    generator = torch.Generator().manual_seed(0)
    for value in network.parameters():
        value.data.copy_(torch.rand(value.shape, generator=generator) - 0.5)
    for value in (norm.running_mean, norm.running_var):
        value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    view.refresh()

    assert_alike(view, network)


def test_folding_does_not_change_the_network():
    network = net().train()
    before, flags = state(network), [module.training for module in network.modules()]
    fold(network, X).refresh()

    assert changed(network, before) == set()
    assert [module.training for module in network.modules()] == flags
    assert type(network.bn1) is nn.BatchNorm2d
    assert all(weight.requires_grad for weight in network.parameters())


class DataDependent(Net):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


@pytest.mark.parametrize(
    "network",
    [DataDependent().eval(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
     nn.Sequential(nn.Conv2d(1, 4, 3), Activated(4), nn.Flatten(), nn.Linear(144, 10)).eval()],
    ids=["depends on data", "no BatchNorm", "a subclass of BatchNorm"],
)  # fmt: skip
def test_a_network_that_cannot_be_folded_has_no_view(network):
    assert fold(network, X) is None
