"""Priors against torch's own weight decay, and against the gradient of their penalty."""

import math

import pytest
import torch
from robustkit.defenses.weights.prior import prior, std_of
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.errors import UserError
from tests.defenses.nets import batch, net
from tests.small import linear


def trained(optimizer, pull=None, way="add_to", steps: int = 5, network=None) -> list[Tensor]:
    network = net().train() if network is None else network
    optimizer = optimizer(network.parameters())
    for step in range(steps):
        images = batch(32 * step, 32)
        optimizer.zero_grad()
        F.cross_entropy(network(images.x), images.y).backward()
        if pull is not None:
            pull.add_to(network) if way == "add_to" else pull.shrink(network, 0.01)
        optimizer.step()
    return [weight.detach() for weight in network.parameters()]


@pytest.mark.parametrize("nesterov", [True, False])
def test_a_gaussian_is_sgds_weight_decay(nesterov):
    def sgd(decay):
        return lambda weights: torch.optim.SGD(weights, 0.01, 0.9, nesterov=nesterov, weight_decay=decay)

    weights = trained(sgd(0.0), prior("gaussian:decay=0.01", net(), 100))

    torch.testing.assert_close(weights, trained(sgd(0.01)), atol=1e-7, rtol=0)


def test_under_adamw_it_is_adamws_weight_decay():
    def adamw(decay):
        return lambda weights: torch.optim.AdamW(weights, 0.01, weight_decay=decay)

    # No bias before a BatchNorm: its gradient is rounding alone, which Adam would blow up.
    weights = trained(adamw(0.0), prior("gaussian:0.1", linear(), 100), "shrink", network=linear())

    torch.testing.assert_close(weights, trained(adamw(0.1), network=linear()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("text", ["gaussian:decay=0.3", "gaussian:std=0.4", "l2sp:0.2", "l2sp:std=0.7", "ewc:3"])
def test_the_added_gradient_is_that_of_the_penalty(text):
    network = net()
    fisher = {name: torch.rand_like(weight) for name, weight in network.named_parameters()}
    pull = prior(text, network, 50, fisher=fisher, fresh={"fc.weight"})
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
            weight.grad = torch.zeros_like(weight)

    pull.add_to(network)

    for name, weight in network.named_parameters():
        one = pull.pulls[name]
        values = weight.detach().clone().requires_grad_()
        away = values if one.centre is None else values - one.centre
        (slope,) = torch.autograd.grad((one.precision * away**2).sum() / 2, values)
        torch.testing.assert_close(weight.grad, slope)


def test_l2sp_pulls_to_the_start_and_a_fresh_head_to_zero():
    network = net()
    pull = prior("l2sp:0.5", network, 50, fresh={"fc.weight", "fc.bias"})
    start = [weight.detach().clone() for weight in network.parameters()]
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(1)
            weight.grad = torch.zeros_like(weight)
    pull.add_to(network)

    for (name, weight), old in zip(network.named_parameters(), start, strict=True):
        centre = torch.zeros_like(old) if name.startswith("fc") else old
        torch.testing.assert_close(weight.grad, 0.5 * (weight.detach() - centre))


def test_weights_without_a_gradient_are_not_changed():
    network = net()
    before = [weight.detach().clone() for weight in network.parameters()]
    pull = prior("gaussian:1", network, 10)
    pull.add_to(network)
    pull.shrink(network, 0.1)

    assert all(weight.grad is None for weight in network.parameters())
    assert all(torch.equal(weight, old) for weight, old in zip(network.parameters(), before, strict=True))


def test_norms_and_biases_can_be_excluded():
    assert set(prior("gaussian:1", net(), 10, decay_norms=False).pulls) == {
        "conv1.weight", "layer1.0.weight", "layer10.0.weight", "fc.weight",
    }  # fmt: skip


def test_precision_and_standard_deviation_give_the_same_prior():
    # lambda = 1 / (N sigma^2): 5e-4 over 50,000 images is a standard deviation of 0.2, over 1,099 one of 1.35.
    assert std_of(5e-4, 50_000) == pytest.approx(0.2)
    assert std_of(5e-4, 1099) == pytest.approx(1.349, abs=1e-3)
    assert std_of(0, 10) == math.inf
    by_std = prior("gaussian:std=0.2", net(), 50_000).pulls["fc.weight"].precision
    assert by_std == pytest.approx(5e-4)
    assert prior("none", net(), 10).pulls == {}


@pytest.mark.parametrize("text", ["gaussian", "gaussian:0", "gaussian:-1", "l2sp:std=x", "gaussian:var=1", "lasso:1",
                                  "ewc:inf", "gaussian:nan"])  # fmt: skip
def test_an_unknown_prior_is_refused(text):
    with pytest.raises(UserError):
        prior(text, net(), 10)


@pytest.mark.parametrize("text", ["gaussian:std=1e-300", "gaussian:std=1e300", "gaussian:std=1e-40", "l2sp:1e300"])
def test_a_strength_beyond_the_range_of_floats_is_refused_and_no_crash(text):
    with pytest.raises(UserError, match="is not a prior"):
        prior(text, net(), 10)


def test_without_decay_norms_the_biases_of_attention_and_of_recurrent_layers_are_free_too():
    # Their names are in_proj_bias and bias_ih_l0, not bias.
    network = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 1), "rows": nn.LSTM(4, 4), "norm": nn.LayerNorm(4)})

    pulls = prior("gaussian:decay=0.1", network, 100, decay_norms=False).pulls

    assert not [name for name in pulls if "bias" in name]
    assert {"attention.in_proj_weight", "rows.weight_hh_l0", "norm.weight"} <= set(pulls)
