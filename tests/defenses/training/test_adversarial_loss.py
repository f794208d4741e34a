"""The loss of adversarial images in a training loop of one's own."""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
import torch.distributed
from robustkit.attacks import PGD
from robustkit.defenses import AdversarialLoss
from robustkit.defenses.inner_attack.crafting import noise_keys
from robustkit.defenses.training.batches import Batch
from torch import nn
from torch.nn import functional as F

from robustkit import Classifier, UserError
from tests.defenses.nets import SHORT, changed, digits, net, same_weights, state, stepper

EPS = 0.1
X, Y = digits(0, 16)


def modes(network: nn.Module) -> list[bool]:
    return [module.training for module in network.modules()]


@pytest.mark.parametrize("awp", [0.0, 0.01])
@pytest.mark.parametrize("objective", ["at", "trades:6", "mart:5", "clean"])
def test_a_loop_of_ones_own_takes_the_steps_of_a_fine_tuning(objective, awp):
    recipe = SHORT.but(objective=objective, label_smoothing=0.1, awp=awp)
    own, tuned = net().train(), net()
    optimizer = torch.optim.SGD(own.parameters(), recipe.lr)
    loss = AdversarialLoss(own, recipe.attack, eps=EPS, objective=objective, label_smoothing=0.1)
    taker = stepper(tuned, recipe, EPS)
    for step in range(3):
        x, y = digits(16 * step, 16)
        x_adv = loss.adversarial(x, y)
        with loss.with_worse_weights(x, x_adv, y, awp) if awp else nullcontext():
            loss.of(x, x_adv, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        taker.step([Batch(x, y, noise_keys(0, step, torch.arange(16)))], 1.0)

    assert same_weights(own, tuned)


def test_the_loss_of_trades_is_that_of_the_paper():
    network = net().train()
    loss = AdversarialLoss(network, "pgd:steps=3", eps=EPS, objective="trades:4")
    x_adv = loss.adversarial(X, Y)
    with torch.no_grad():
        clean, adversarial = (copy.deepcopy(network)(images) for images in (X, x_adv))
        robust_term = F.kl_div(adversarial.log_softmax(1), clean.softmax(1), reduction="batchmean")

    torch.testing.assert_close(loss.of(X, x_adv, Y).detach(), F.cross_entropy(clean, Y) + 4 * robust_term)


@pytest.mark.parametrize("attack", ["pgd:steps=2", PGD(EPS, steps=2), "rs-fgsm", "fgsm"])
def test_adversarial_images_lie_in_the_ball_and_raise_the_loss(attack):
    network = net()
    loss = AdversarialLoss(network, attack, eps=EPS)
    before, flags = state(network), modes(network.train())
    x_adv = loss.adversarial(X, Y)

    assert bool(PGD(EPS).ball.contains(X, x_adv).all())
    assert (changed(network, before), modes(network)) == (set(), flags)
    assert all(weight.grad is None for weight in network.parameters())
    network.eval()
    assert loss.of(X, x_adv, Y) > 20 * loss.of(X, X, Y)


def test_every_step_has_noise_of_its_own_and_a_continued_training_the_same():
    network = net()
    loss, again, other = (AdversarialLoss(network, "pgd:steps=1", eps=EPS, seed=seed) for seed in (0, 0, 1))
    first, second = loss.adversarial(X, Y), loss.adversarial(X, Y)
    again.step = 1

    assert not torch.equal(first, second)
    assert torch.equal(again.adversarial(X, Y), second)
    assert not torch.equal(other.adversarial(X, Y), first)


class LowRank(nn.Linear):
    """Adds its low-rank update to the weight in eval mode, as the layers of loralib do."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.update, self.merged = nn.Parameter(torch.ones(10, 64) / 64), False

    def train(self, mode: bool = True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += self.update.data * (-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight if self.merged else self.weight + self.update, self.bias)


def test_a_layer_that_folds_weights_in_eval_mode_learns_after_an_attack():
    # Its flag was restored without its `train`: the update stayed in the weight and got no gradient.
    layer = LowRank()
    AdversarialLoss(nn.Sequential(nn.Flatten(), layer), "fgsm", eps=EPS)(X, Y).backward()

    assert layer.training
    assert not layer.merged
    assert layer.update.grad is not None


@pytest.mark.parametrize("objective", ["at", "trades:6"])
@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_images_are_attacked_where_gradients_are_switched_off(without_gradients, objective):
    loss = AdversarialLoss(net(), "pgd:steps=2", eps=EPS, objective=objective)
    with without_gradients():
        x, y = X.clone(), Y.clone()
        x_adv = loss.adversarial(x, y)

        assert loss.of(x, x_adv, y) > 20 * loss.of(x, x, y)


@pytest.mark.parametrize("objective", ["at", "trades:6"])
def test_weights_are_perturbed_within_one_autocast_context_too(objective):
    # Autocast kept the bf16 copies of the weights that the attack had made, and the perturbation changed no loss.
    losses = []
    for cached in (True, False):
        loss = AdversarialLoss(net().eval(), "pgd:steps=2", eps=EPS, objective=objective)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            x_adv = loss.adversarial(X, Y)
            with loss.with_worse_weights(X, x_adv, Y, size=0.05):
                losses.append(loss.of(X, x_adv, Y).item())
            losses.append(loss.of(X, x_adv, Y).item())

    # Gradients of weights that are used twice are added up in bf16 where there is one copy of them.
    assert losses[:2] == pytest.approx(losses[2:], rel=0.01)


def test_no_copy_of_the_weights_outlives_an_attack_under_autocast():
    # TRADES makes them under no_grad: in older versions of torch, the weights then got no gradient.
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    loss = AdversarialLoss(network, "fgsm", eps=EPS, objective="trades:6")
    with torch.autocast("cpu", torch.bfloat16):
        x_adv = loss.adversarial(X, Y)
        nn.init.zeros_(network[1].weight)
        nn.init.zeros_(network[1].bias)

        assert loss.of(X, x_adv, Y).item() == pytest.approx(math.log(10))


def test_a_classifier_brings_its_normalisation():
    network = net()
    inside = nn.Sequential(copy.deepcopy(network))
    shifted = Classifier(network, mean=[0.5], std=[2.0])
    ours = AdversarialLoss(shifted, eps=EPS, objective="clean")(X, Y)

    torch.testing.assert_close(ours, F.cross_entropy(inside((X - 0.5) / 2), Y))


@pytest.mark.filterwarnings("ignore")  # torch warns about gloo on machines without a network
def test_weights_learn_under_distributed_data_parallel(tmp_path):
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        parallel, alone = net().train(), net().train()
        for model in (nn.parallel.DistributedDataParallel(parallel, broadcast_buffers=False), alone):
            loss = AdversarialLoss(model, "pgd:steps=2", eps=EPS, objective="trades:6")
            optimizer = torch.optim.SGD(model.parameters(), 0.02)
            for _ in range(2):
                loss(X, Y).backward()
                optimizer.step()
                optimizer.zero_grad()
    finally:
        torch.distributed.destroy_process_group()

    for one, other in zip(parallel.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore")  # torch warns about gloo on machines without a network
def test_an_attack_waits_for_no_other_process_where_a_classifier_is_around_the_parallel_network(tmp_path):
    # If one process attacked alone, as for a log, the others' buffers were waited for, for ever.
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        parallel, called = nn.parallel.DistributedDataParallel(net()), []
        parallel.register_forward_hook(lambda *_: called.append(True))
        loss = AdversarialLoss(Classifier(parallel, mean=[0.0], std=[1.0]), "pgd:steps=2", eps=EPS)
        x_adv = loss.adversarial(X, Y)
        assert not called
        loss.of(X, x_adv, Y).backward()
    finally:
        torch.distributed.destroy_process_group()

    assert called
    torch.testing.assert_close(x_adv, AdversarialLoss(net(), "pgd:steps=2", eps=EPS).adversarial(X, Y))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"attack": "free:4"}, "robustkit.finetune"),
        ({"objective": "mat"}, "objective"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"attack": "fab"}, "several gradients"),
        ({"eps": "8/0"}, "8/0"),
        ({"objective": None}, r"AdversarialLoss\(\): objective must be str"),
        ({"attack_bn": "off"}, "attack_bn must be"),
        ({"label_smoothing": "0.1"}, "label_smoothing must be float"),
        ({"beta": 6}, r"AdversarialLoss\(\) has no argument 'beta'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_fix(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        AdversarialLoss(net(), **{"attack": "pgd:steps=2", "eps": EPS, **arguments})


@pytest.mark.parametrize("images", [X * 255, (X * 255).byte(), X * float("nan")])
def test_images_that_are_no_pixels_are_refused(images):
    with pytest.raises(UserError, match=r"\[0, 1\]|NaN"):
        AdversarialLoss(net(), "pgd:steps=2", eps=EPS)(images, Y)


@pytest.mark.parametrize("objective", ["clean", "at", "trades:6", "mart:5"])
@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (F.one_hot(Y, 10).float(), "16 whole numbers"),
        (Y[:, None], "16 whole numbers"),
        (Y.masked_fill(Y[2] == Y, -100), "Label -100 of image 2"),
        (Y.masked_fill(Y[2] == Y, 10), "Label 10 of image 2 .* 0 to 9"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, sentence, objective):
    # Torch leaves out labels of -100, silently, and stops at others without a word on labels.
    loss = AdversarialLoss(net(), "pgd:steps=2", eps=EPS, objective=objective)
    with pytest.raises(UserError, match=sentence):
        loss(X, labels)
    with pytest.raises(UserError, match=sentence):
        loss.of(X, X, labels)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(UserError, match="y must be Tensor, not list"):
        AdversarialLoss(net(), "fgsm", eps=EPS)(X, Y.tolist())


def test_labels_are_whole_numbers_of_any_type():
    losses = [AdversarialLoss(net(), "pgd:steps=2", eps=EPS, objective="mart:5")(X, y) for y in (Y, Y.int(), Y.byte())]

    assert losses[0] == losses[1] == losses[2]


def test_adversarial_images_of_other_images_are_refused():
    # TRADES compared all with the only one.
    with pytest.raises(UserError, match="same images"):
        AdversarialLoss(net(), "fgsm", eps=EPS, objective="trades:6").of(X, X[:1], Y)


@pytest.mark.parametrize("size", [-0.005, float("nan"), float("inf")])
def test_weights_are_not_moved_by_a_size_that_is_none(size):
    # A negative one moved them down the loss.
    with pytest.raises(UserError, match="size"):
        AdversarialLoss(net(), "fgsm", eps=EPS).with_worse_weights(X, X, Y, size)


def test_weights_are_moved_where_gradients_are_switched_off():
    loss = AdversarialLoss(net(), "fgsm", eps=EPS)
    with torch.no_grad(), loss.with_worse_weights(X, X, Y, 0.05):
        worse = loss.of(X, X, Y)

    assert worse > loss.of(X, X, Y)


def test_a_network_that_learns_nothing_has_no_worse_weights():
    with pytest.raises(UserError, match="requires_grad=True"):
        AdversarialLoss(net().requires_grad_(False), "fgsm", eps=EPS).with_worse_weights(X, X, Y, 0.05)
