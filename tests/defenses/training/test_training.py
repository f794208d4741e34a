"""Whole trainings: what they reach, what they keep, and what they leave unchanged."""

from functools import cache

import pytest
import torch
from robustkit.defenses import Diverged, finetune
from robustkit.defenses.training import setup

from robustkit.data import from_tensors
from tests.defenses.doubles import Last, Wrapped, at_step
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, digits, judge_as, net, same_weights, state

EPS = 0.1
ONE = SHORT.but(epochs=1)
LONGER = SHORT.but(epochs=4, lr=0.05, attack="pgd:steps=3", select="pgd:steps=10", eps_warmup=None)


def last_network(recipe=ONE, network=None, train=TRAIN, eps=EPS):
    """The network as it is after the last step of a training, whichever epoch is kept."""
    network = net() if network is None else network
    watch = Last(network)
    finetune(network, train, VAL, eps=eps, recipe=recipe, watch=watch)
    return watch.model


def test_a_network_becomes_robust_on_images_it_has_not_seen():
    tuned = finetune(net(), digits(0, 400), VAL, eps=0.2, recipe=LONGER)

    assert tuned.start.worst < 0.1
    assert tuned.best.worst > 0.2
    assert tuned.best.clean > 0.7
    assert (tuned.status, len(tuned.history)) == ("finished", 4)


def test_the_weights_of_the_best_epoch_are_kept():
    network = net()
    tuned = finetune(network, TRAIN, VAL, eps=EPS, recipe=LONGER.but(epochs=3))
    row = tuned.history.iloc[tuned.best_epoch - 1]

    assert tuned.best_epoch > 0
    assert row["best"]
    assert row["val_worst"] == tuned.history["val_worst"].max() == tuned.best.worst
    accuracy = (network(VAL[0]).argmax(1) == VAL[1]).double().mean().item()
    assert accuracy == pytest.approx(tuned.best.clean)
    assert not any(module.training for module in network.modules())
    assert all(weight.grad is None for weight in network.parameters())


@pytest.mark.usefixtures("judged_quickly")
def test_the_same_seed_gives_the_same_bits_and_another_seed_other_ones():
    random = torch.get_rng_state()
    one = last_network(network=net(dropout=0.2))
    torch.rand(3)
    again, other = last_network(network=net(dropout=0.2)), last_network(ONE.but(seed=1), net(dropout=0.2))
    torch.set_rng_state(random)

    assert same_weights(one, again)
    assert not same_weights(one, other)


@cache
def with_prior():
    network = net()
    return network, finetune(network, TRAIN, VAL, eps=EPS, recipe=ONE.but(prior="ewc:1"))


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize("without", [pytest.param(torch.no_grad, marks=pytest.mark.slow), torch.inference_mode])
def test_a_caller_without_gradients_does_not_matter(without):
    (one, first), other = with_prior(), net()
    with without():
        second = finetune(other, TRAIN, VAL, eps=EPS, recipe=ONE.but(prior="ewc:1"))

    assert same_weights(one, other)
    assert second.best == first.best


@pytest.mark.usefixtures("judged_quickly")
def test_gradients_that_the_caller_left_are_not_used():
    other = net()
    for weight in other.parameters():
        weight.grad = torch.ones_like(weight)

    assert same_weights(last_network(), last_network(network=other))


@pytest.mark.usefixtures("judged_quickly")
def test_an_interrupted_training_leaves_no_gradient():
    network, calls = net(), []

    def interrupt(grad):
        calls.append(grad)
        if len(calls) == 3:
            raise KeyboardInterrupt

    network.layer1[0].weight.register_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT)

    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())
    assert not any(module.training for module in network.modules())


@pytest.mark.parametrize("prior", ["none", "ewc:1"])
def test_a_model_given_in_train_mode_starts_with_the_statistics_it_has(prior, monkeypatch):
    # The start is better than any epoch, so the weights must be as before.
    judge_as(monkeypatch, [(0.9, 0.5), (0.9, 0.4)])
    network = net().train()
    before = state(network)
    finetune(network, TRAIN, VAL, eps=EPS, recipe=ONE.but(attack_bn="train", prior=prior))

    assert changed(network, before) == set()


def test_the_global_random_state_is_restored():
    network, before = net(dropout=0.5), torch.get_rng_state()
    finetune(network, TRAIN, VAL, eps=EPS, recipe=ONE)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("ema", [None, 0.5])
def test_statistics_of_the_kept_weights_are_recalculated_and_those_of_the_training_are_not(ema, monkeypatch):
    scores = [(0.9, 0.0)] + [(0.9, 0.2)] * (1 if ema is None else 2)
    judge_as(monkeypatch, scores * 2)
    plain, recalibrated = net(), net()
    recipe = ONE.but(ema=ema)
    ends = Last(plain), Last(recalibrated)
    first = finetune(plain, TRAIN, VAL, eps=0.02, recipe=recipe, watch=ends[0])
    second = finetune(recalibrated, TRAIN, VAL, eps=0.02, recipe=recipe.but(recalibrate=True), watch=ends[1])

    assert same_weights(ends[0].model, ends[1].model)
    assert first.best_epoch == second.best_epoch == 1
    assert torch.equal(plain.conv1.weight, recalibrated.conv1.weight)
    assert not torch.equal(plain.bn1.running_mean, recalibrated.bn1.running_mean)


def test_the_average_is_kept_where_it_is_better(monkeypatch):
    judge_as(monkeypatch, [(0.9, 0.0), (0.9, 0.2), (0.9, 0.4)])
    network = net()
    end = Last(network)
    tuned = finetune(network, TRAIN, VAL, eps=EPS, recipe=ONE.but(ema=0.9), watch=end)

    assert tuned.best.worst == 0.4
    start, average, last = net().fc.weight, network.fc.weight, end.model.fc.weight
    assert 0 < (average - start).norm() < (last - start).norm()
    assert torch.equal(network.bn1.running_mean, end.model.bn1.running_mean)


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize(
    ("recipe", "other", "tolerance"),
    [(ONE, {"channels_last": True}, 0.02), (SHORT.but(lr=0.05, schedule="flat", warmup=0.0), {"bf16": True}, 0.25)],
    ids=["channels last", "bf16"],
)
def test_layout_and_precision_change_the_loss_little(recipe, other, tolerance):
    network = net()
    first = finetune(net(), TRAIN, VAL, eps=EPS, recipe=recipe)
    second = finetune(network, TRAIN, VAL, eps=EPS, recipe=recipe.but(**other))

    assert second.history["loss"].tolist() == pytest.approx(first.history["loss"].tolist(), rel=tolerance)
    assert network.layer1[0].weight.is_contiguous()


@pytest.mark.usefixtures("judged_quickly")
def test_folding_changes_the_loss_little(monkeypatch):
    first = finetune(net(), TRAIN, VAL, eps=EPS, recipe=ONE)
    monkeypatch.setattr(setup, "fold", lambda network, x: None)
    second = finetune(net(), TRAIN, VAL, eps=EPS, recipe=ONE)

    assert first.history["loss"][0] == pytest.approx(second.history["loss"][0], rel=0.02)


@pytest.mark.parametrize(
    ("network", "train", "recipe"),
    [
        (net, digits(0, 65), ONE),  # a last batch of one image
        (lambda: Wrapped(net(), after=lambda z: {"logits": z, "features": z}), TRAIN, ONE.but(objective="trades:6")),
    ],
    ids=["a batch of one image", "logits in a dict"],
)
def test_unusual_input_is_trained_on(network, train, recipe):
    assert finetune(network(), train, VAL, eps=EPS, recipe=recipe).history["loss"].notna().all()


def test_clean_training_needs_no_attack():
    tuned = finetune(net(), TRAIN, VAL, eps=EPS, recipe=SHORT.but(objective="clean", lr=0.005))

    assert tuned.best.clean == tuned.best.worst
    assert list(tuned.history["eps"]) == [0, 0]


@pytest.mark.usefixtures("judged_quickly")
def test_a_loss_that_diverges_is_one_sentence_and_the_checkpoint_is_intact(tmp_path):
    recipe = SHORT.but(epochs=3, schedule="flat", warmup=0.0, lr=0.001, guard=False)
    network = net()
    breaks = at_step(7, lambda: network.fc.weight.fill_(float("nan")))

    with pytest.raises(Diverged, match=r"In epoch 2 of 3: .*checkpoint is intact"):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=recipe, out=tmp_path, watch=breaks)

    assert all(weight.isfinite().all() for weight in network.parameters())
    whole, resumed = net(), net()
    expected = finetune(whole, TRAIN, VAL, eps=EPS, recipe=recipe)
    tuned = finetune(resumed, TRAIN, VAL, eps=EPS, recipe=recipe, out=tmp_path)
    assert same_weights(resumed, whole)
    assert tuned.history.drop(columns="seconds").equals(expected.history.drop(columns="seconds"))


@pytest.mark.parametrize("objective", ["clean", "at"])
def test_weights_that_are_nan_after_the_last_step_are_no_result(objective):
    network = net()
    breaks = at_step(10, lambda: network.fc.weight.fill_(float("nan")))

    with pytest.raises(Diverged, match=r"In epoch 2 of 2: .*no longer be judged"):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT.but(objective=objective), watch=breaks)


@pytest.mark.usefixtures("judged_quickly")
def test_infinite_weights_are_not_written(tmp_path):
    network = net()
    breaks = at_step(5, lambda: network.fc.weight[0, 0].fill_(float("inf")))

    with pytest.raises(Diverged, match="lower lr"):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT, out=tmp_path, watch=breaks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("judged_quickly")
def test_a_data_set_and_tensors_give_the_same_training():
    assert same_weights(last_network(eps="0.1"), last_network(train=from_tensors(*TRAIN)))
