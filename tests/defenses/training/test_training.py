"""Whole trainings: what they reach, what they keep, and what they leave as it was."""

import copy
from collections.abc import Callable

import pytest
import torch
from robustkit.defenses import Diverged, finetune
from robustkit.defenses.training import training
from robustkit.defenses.training.selection import ValidationScore
from torch import nn

from robustkit.data import from_tensors
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, digits, net, state

EPS = 0.1
LONGER = SHORT.but(epochs=6, lr=0.05, attack="pgd:steps=3", select="pgd:steps=10", eps_warmup=None)


def last_of(network: nn.Module):
    """A watch that remembers the network as it is after the last step."""

    class Last:
        model = None

        def training(self, text, share):
            self.model = copy.deepcopy(network)

        def say(self, text): ...

    return Last()


def test_a_network_becomes_robust_on_images_it_has_not_seen():
    x, y = digits(0, 600)
    found = finetune(net(), (x, y), VAL, eps=0.2, recipe=LONGER)

    assert found.start.worst < 0.1
    assert found.best.worst > 0.2
    assert found.best.clean > 0.7
    assert (found.status, len(found.history)) == ("finished", 6)


def test_the_weights_of_the_best_epoch_are_kept():
    network = net()
    found = finetune(network, TRAIN, VAL, eps=EPS, recipe=LONGER.but(epochs=3))
    row = found.history.iloc[found.best_epoch - 1]

    assert found.best_epoch > 0
    assert row["best"]
    assert row["val_worst"] == found.history["val_worst"].max() == found.best.worst
    right = (network(VAL[0]).argmax(1) == VAL[1]).double().mean().item()
    assert right == pytest.approx(found.best.clean)
    assert not any(module.training for module in network.modules())
    assert all(weight.grad is None for weight in network.parameters())


def test_the_same_seed_makes_the_same_bits_and_another_one_others():
    one, other, third = net(dropout=0.2), net(dropout=0.2), net(dropout=0.2)
    watch = last_of(one), last_of(other), last_of(third)
    random = torch.get_rng_state()
    finetune(one, TRAIN, VAL, eps=EPS, recipe=SHORT, watch=watch[0])
    torch.rand(3)
    finetune(other, TRAIN, VAL, eps=EPS, recipe=SHORT, watch=watch[1])
    finetune(third, TRAIN, VAL, eps=EPS, recipe=SHORT.but(seed=1), watch=watch[2])

    assert changed(watch[0].model, state(watch[1].model)) == set()
    assert changed(watch[0].model, state(watch[2].model))
    torch.set_rng_state(random)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_a_caller_without_gradients_does_not_matter(without):
    one, other = net(), net()
    first = finetune(one, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, prior="ewc:1"))
    with without():
        second = finetune(other, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, prior="ewc:1"))

    assert changed(one, state(other)) == set()
    assert second.best == first.best


def test_gradients_left_behind_by_the_caller_are_not_learnt_from():
    one, other = net(), net()
    watch = last_of(one), last_of(other)
    for weight in other.parameters():
        weight.grad = torch.ones_like(weight)
    finetune(one, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1), watch=watch[0])
    finetune(other, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1), watch=watch[1])

    assert changed(watch[0].model, state(watch[1].model)) == set()


def test_a_training_that_is_broken_off_leaves_no_gradient_behind():
    network, calls = net(), []

    def broken_off(grad):
        calls.append(grad)
        if len(calls) == 3:
            raise KeyboardInterrupt

    network.layer1[0].weight.register_hook(broken_off)
    with pytest.raises(KeyboardInterrupt):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT)

    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())
    assert not any(module.training for module in network.modules())


@pytest.mark.parametrize("prior", ["none", "ewc:1"])
def test_a_model_given_in_train_mode_starts_with_the_statistics_it_has(prior, monkeypatch):
    # The start is better than any epoch, so the weights must be as before.
    levels = iter([ValidationScore(0.9, 0.5, 0.5), ValidationScore(0.9, 0.4, 0.4)])
    monkeypatch.setattr("robustkit.defenses.training.selection.Judge.level", lambda self, network: next(levels))
    network = net().train()
    before = state(network)
    finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, attack_bn="train", prior=prior))

    assert changed(network, before) == set()


def test_the_global_random_state_is_left_alone():
    network, before = net(dropout=0.5), torch.get_rng_state()
    finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("ema", [None, 0.5])
def test_statistics_are_taken_anew_on_adversarial_images_of_what_is_kept(ema, monkeypatch):
    # Also without an average; the training itself goes on with its own statistics.
    rising = ([ValidationScore(0.9, 0.0, 0.0)] + [ValidationScore(0.9, 0.2, 0.2)] * (1 if ema is None else 2)) * 2
    monkeypatch.setattr("robustkit.defenses.training.selection.Judge.level", lambda self, network: rising.pop(0))
    plain, anew = net(), net()
    recipe = SHORT.but(epochs=1, ema=ema)
    ends = last_of(plain), last_of(anew)
    first = finetune(plain, TRAIN, VAL, eps=0.02, recipe=recipe, watch=ends[0])
    second = finetune(anew, TRAIN, VAL, eps=0.02, recipe=recipe.but(recalibrate=True), watch=ends[1])

    assert changed(ends[0].model, state(ends[1].model)) == set()
    assert first.best_epoch == second.best_epoch == 1
    assert torch.equal(plain.conv1.weight, anew.conv1.weight)
    assert not torch.equal(plain.bn1.running_mean, anew.bn1.running_mean)


def test_the_average_is_kept_where_it_is_better(monkeypatch):
    levels = iter([ValidationScore(0.9, 0.0, 0.0), ValidationScore(0.9, 0.2, 0.2), ValidationScore(0.9, 0.4, 0.4)])
    monkeypatch.setattr("robustkit.defenses.training.selection.Judge.level", lambda self, network: next(levels))
    network = net()
    end = last_of(network)
    found = finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, ema=0.9), watch=end)

    assert found.best.worst == 0.4
    start, mine, live = net().fc.weight, network.fc.weight, end.model.fc.weight
    assert 0 < (mine - start).norm() < (live - start).norm()
    assert torch.equal(network.bn1.running_mean, end.model.bn1.running_mean)


def test_another_memory_layout_changes_no_number_much():
    one, other = net(), net()
    first = finetune(one, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1))
    second = finetune(other, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, channels_last=True))

    assert first.history["loss"][0] == pytest.approx(second.history["loss"][0], rel=0.02)
    assert other.layer1[0].weight.is_contiguous()


def test_bf16_changes_no_number_much():
    recipe = SHORT.but(lr=0.05, schedule="flat", warmup=0.0)
    exact = finetune(net(), TRAIN, VAL, eps=EPS, recipe=recipe)
    coarse = finetune(net(), TRAIN, VAL, eps=EPS, recipe=recipe.but(bf16=True))

    assert coarse.history["loss"].tolist() == pytest.approx(exact.history["loss"].tolist(), rel=0.25)


def test_folding_changes_no_number_much(monkeypatch):
    first = finetune(net(), TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1))
    monkeypatch.setattr(training, "fold", lambda network, x: None)
    second = finetune(net(), TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1))

    assert first.history["loss"][0] == pytest.approx(second.history["loss"][0], rel=0.02)


def test_a_batch_of_one_image_is_left_out():
    x, y = digits(0, 65)
    found = finetune(net(), (x, y), VAL, eps=EPS, recipe=SHORT.but(epochs=1))

    assert found.history["loss"].notna().all()


def test_clean_training_needs_no_attack():
    found = finetune(net(), TRAIN, VAL, eps=EPS, recipe=SHORT.but(objective="clean", lr=0.005))

    assert found.best.clean == found.best.worst
    assert list(found.history["eps"]) == [0, 0]


class Breaks:
    """After a step it spoils the network."""

    def __init__(self, step: int, spoil: Callable[[], object]) -> None:
        self.left, self.spoil = step, spoil

    def training(self, text, share):
        self.left -= 1
        if self.left == 0:
            with torch.no_grad():
                self.spoil()

    def say(self, text): ...


def test_a_loss_that_diverges_is_one_sentence_and_leaves_what_was_kept(tmp_path):
    recipe = SHORT.but(epochs=3, schedule="flat", warmup=0.0, lr=0.001, guard=False)
    x, y = TRAIN
    network = net()
    breaks = Breaks(7, lambda: network.fc.weight.fill_(float("nan")))

    with pytest.raises(Diverged, match=r"In epoch 2 of 3: .*kept"):
        finetune(network, (x, y), VAL, eps=EPS, recipe=recipe, out=tmp_path, watch=breaks)

    assert all(weight.isfinite().all() for weight in network.parameters())
    whole, resumed = net(), net()
    found = finetune(whole, (x, y), VAL, eps=EPS, recipe=recipe)
    again = finetune(resumed, (x, y), VAL, eps=EPS, recipe=recipe, out=tmp_path)
    assert changed(resumed, state(whole)) == set()
    assert again.history.drop(columns="seconds").equals(found.history.drop(columns="seconds"))


@pytest.mark.parametrize("objective", ["clean", "at"])
def test_weights_that_are_no_numbers_after_the_last_step_are_no_result(objective):
    network = net()
    breaks = Breaks(10, lambda: network.fc.weight.fill_(float("nan")))

    with pytest.raises(Diverged, match=r"In epoch 2 of 2: .*no longer be judged"):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT.but(objective=objective), watch=breaks)


def test_weights_that_are_no_numbers_are_not_kept(tmp_path):
    network = net()
    breaks = Breaks(5, lambda: network.fc.weight[0, 0].fill_(float("inf")))

    with pytest.raises(Diverged, match="lower lr"):
        finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT, out=tmp_path, watch=breaks)
    assert list(tmp_path.iterdir()) == []


class Doubled(nn.Module):
    """Returns what many models return."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return {"logits": self.inner(x), "features": x}


def test_logits_may_be_wrapped():
    network = Doubled()
    found = finetune(network, TRAIN, VAL, eps=EPS, recipe=SHORT.but(epochs=1, objective="trades:6"))

    assert found.history["loss"].notna().all()


def test_a_data_set_and_tensors_are_the_same():
    one, other = net(), net()
    ends = last_of(one), last_of(other)
    finetune(one, TRAIN, VAL, eps="0.1", recipe=SHORT.but(epochs=1), watch=ends[0])
    finetune(other, from_tensors(*TRAIN), from_tensors(*VAL), eps=0.1, recipe=SHORT.but(epochs=1), watch=ends[1])

    assert changed(ends[0].model, state(ends[1].model)) == set()
