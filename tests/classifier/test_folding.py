import copy
import operator
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from robustkit.attacks import PGD
from torch import Tensor, nn
from torchvision.models import resnet18

from robustkit import attack
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.folding import folded
from robustkit.errors import UserError
from robustkit.testing.problems import SmallConvNet
from tests.networks import Changed, Rounding
from tests.problems import filled, images, problem


def batchnorms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@torch.no_grad()
def difference(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    logits = one(x)
    return ((logits - other(x)).abs().max() / (logits.max() - logits.min())).item()


def test_a_folded_resnet_has_the_same_logits_and_the_original_is_unchanged():
    model, x = filled(resnet18(num_classes=10), gain=1.4), images(4, 3, 32, 32)
    before = copy.deepcopy(model.state_dict())
    copied = folded(model)

    assert copied is not None
    assert batchnorms(copied) == 0
    assert difference(model, copied, x) < 1e-4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class OtherThread(nn.Module):
    """While it is traced, another thread calls another network."""

    def __init__(self, other: nn.Module, seen: list[object]) -> None:
        super().__init__()
        self.body, self.call = SmallConvNet((1, 8, 8), 3), lambda: seen.append(other(images(2, 1, 8, 8)))

    def forward(self, x: Tensor) -> Tensor:
        thread = threading.Thread(target=self.call)
        thread.start()
        thread.join()
        return self.body(x)


def test_networks_in_other_threads_run_while_one_is_traced():
    # torch's trace takes the call of every module of the process: "module is not installed as a submodule".
    other, seen = filled(SmallConvNet((1, 8, 8), 3)).eval(), []

    assert folded(OtherThread(other, seen)) is not None
    assert len(seen) == 1
    assert torch.equal(seen[0], other(images(2, 1, 8, 8)))


def test_folding_keeps_modes_and_gradients_of_the_original():
    model = filled(SmallConvNet((1, 8, 8), 3)).train()
    copied = folded(model)

    assert copied is not None
    assert model.training
    assert not copied.training
    assert all(weight.requires_grad for weight in model.parameters())
    assert not any(weight.requires_grad for weight in copied.parameters())


class Shared(nn.Module):
    """One convolution in front of two normalisations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.two = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return (self.one(self.conv(x)) * self.two(self.conv(x + 1))).mean((2, 3))


class Branched(Shared):
    """A convolution whose output goes into its normalisation and also elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return (self.one(y) * y + self.two(y)).mean((2, 3))


class Kept(Shared):
    """The same, with one normalisation."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return (self.one(y) + y).mean((2, 3))


class OneNorm(Shared):
    """Two convolutions' outputs through one normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Conv2d(1, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.one(self.conv(x)) + self.one(self.other(x))).mean((2, 3))


class Functional(SmallConvNet):
    """BatchNorm called as a function: nothing to fold."""

    def forward(self, x: Tensor) -> Tensor:
        norm = self.body[1]
        x = nn.functional.batch_norm(self.body[0](x), norm.running_mean, norm.running_var)
        return self.head(self.body[2:](x).flatten(1))


@pytest.mark.parametrize("build", [Shared, Branched, Kept, OneNorm, lambda: Functional((1, 8, 8), 3)])
def test_a_convolution_used_twice_is_not_folded_wrongly(build):
    model, x = filled(build()), images(4, 1, 8, 8)
    copied = folded(model)

    assert copied is None or difference(model, copied, x) < 1e-5


class Branching(nn.Module):
    """Its path depends on the data, which cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallConvNet((1, 8, 8), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x if x.sum() > 0 else -x)


def test_a_model_that_cannot_be_traced_is_not_folded():
    assert folded(filled(Branching())) is None


class OwnStatistics(nn.Module):
    """Normalises by the statistics of the batch in eval mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallConvNet((1, 8, 8), 3)

    def forward(self, x: Tensor) -> Tensor:
        for module in self.inner.modules():
            module.train(isinstance(module, nn.BatchNorm2d))
        return self.inner(x)


def test_a_model_that_switches_a_batchnorm_to_train_mode_is_refused_for_its_batches():
    """It was torch's AssertionError, "Fusion only for eval!"."""
    made = problem("cnn", 1, 8, 8, count=4)

    with pytest.raises(UserError, match="depends on the other images of its batch"):
        attack(OwnStatistics(), made.x, made.y, PGD(eps=0.1))


def test_a_model_without_batchnorm_is_not_folded():
    assert folded(nn.Linear(2, 2)) is None


@pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hooked_model_is_not_folded(hook):
    model = filled(SmallConvNet((1, 8, 8), 3))
    getattr(model.body[0], hook)(lambda *seen: None)

    assert folded(model) is None


def test_other_convolutions_keep_their_normalisation():
    model = filled(nn.Sequential(nn.ConvTranspose2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 2)))
    copied = folded(model)

    assert copied is None or difference(model, copied, images(2, 1, 8, 8)) < 1e-6


class Scaled(nn.Module):
    """Normalised pixels through a padded convolution."""

    def __init__(self, *, groups: int = 1, twice: bool = False) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5]).reshape(2, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3]).reshape(2, 1, 1))
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1, groups=groups), nn.BatchNorm2d(4)
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        y = self.norm(self.conv(x)).mean((2, 3))
        return y + x.mean((2, 3)).sum(1, keepdim=True) if self.twice else y


def divisions(model: nn.Module) -> int:
    return sum(node.target is operator.truediv for node in model.graph.nodes)


def test_a_normalisation_is_folded_into_the_convolution_after_it():
    model, x = filled(Scaled()), images(4, 2, 8, 8)
    copied = folded(model)

    assert divisions(copied) == 0
    assert difference(model, copied, x) < 1e-6


@pytest.mark.parametrize("wish", [{"groups": 2}, {"twice": True}], ids=str)
def test_a_normalisation_that_cannot_be_folded_alone_stays(wish):
    model, x = filled(Scaled(**wish)), images(4, 2, 8, 8)
    copied = folded(model)

    assert divisions(copied) == 1
    assert difference(model, copied, x) < 1e-6


class Rectified(nn.Module):
    """ReLUs whose input is a convolution, a sum, needed elsewhere, or needed by a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm, self.relu = nn.Conv2d(1, 4, 3), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.norm(self.one(x)), self.two(x)
        kept = self.relu(second)
        both = nn.functional.relu(self.relu(first) + second)
        gate = torch.relu(torch.sigmoid(second) - 0.5)
        return self.head((torch.relu(torch.tanh(both)) + kept + gate).mean((2, 3)))


def test_relus_in_place_change_neither_values_nor_gradients():
    model, x = filled(Rectified(), gain=2.0), images(4, 1, 8, 8).requires_grad_()
    copied = folded(model)
    mine, theirs = (torch.autograd.grad(net(x).square().sum(), x)[0] for net in (model, copied))

    assert sum(node.target is torch.relu_ for node in copied.graph.nodes) == 2
    assert difference(model, copied, x) < 1e-6
    assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_weights_that_are_not_folded_are_shared():
    model = filled(Rectified())
    copied = folded(model)

    assert copied.head.weight.data_ptr() == model.head.weight.data_ptr()
    assert copied.one.weight.data_ptr() != model.one.weight.data_ptr()


class StraightThrough(nn.Module):
    """Rounds, with the gradient of the identity, written in ways of which a trace forgets some."""

    def __init__(self, body: nn.Module, way: str) -> None:
        super().__init__()
        self.body, self.way, self.rounding = body, way, Rounding(16)
        if way == "a hook of the backward pass":
            self.rounding.register_full_backward_hook(lambda module, given, out: out)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.rounding(x) if self.way == "a hook of the backward pass" else x + self.change(x))

    def change(self, x: Tensor) -> Tensor:
        if self.way == "no_grad":
            with torch.no_grad():
                return self.rounding(x) - x
        if self.way == "set_grad_enabled":
            with torch.set_grad_enabled(False):
                return self.rounding(x) - x
        if self.way == "inference_mode":
            with torch.inference_mode():
                change = self.rounding(x) - x
            return change.clone()
        return (self.rounding(x) - x).detach()


def broken(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Which images an attack breaks that may query a folded copy, and one that may not."""
    with torch.no_grad():
        y = net(x).argmax(1)
    folded_, own = (attack(Classifier(net, fold=fold), x, y, PGD(0.1, steps=5)) for fold in (True, False))
    return folded_.success, own.success


@pytest.mark.parametrize(
    "way", ["no_grad", "set_grad_enabled", "inference_mode", "detach", "a hook of the backward pass"]
)
def test_the_search_has_the_networks_own_gradients(way):
    # A trace forgets where gradients are off: a straight-through estimator had a gradient of zero, and 92 % of images
    # stood that its own gradients break.
    made = problem("cnn", 1, 8, 8, count=40)
    folded_, own = broken(StraightThrough(made.model, way).eval(), made.x)

    assert 2 * own.sum() > len(own)
    assert torch.equal(folded_, own)


class SometimesStraightThrough(StraightThrough):
    """Does so on bright images alone."""

    def change(self, x: Tensor) -> Tensor:
        return super().change(x) * (x.mean((1, 2, 3), keepdim=True) > 0.5)


@pytest.mark.parametrize("way", ["no_grad", "inference_mode"])
def test_the_search_has_the_networks_own_gradients_on_images_that_are_not_probed_too(way):
    # Where the first images had the same gradients in a trace, 84 % stood of which the network's own leave 64 %.
    made = problem("cnn", 1, 8, 8, count=40)
    by_brightness = made.x[made.x.mean((1, 2, 3)).argsort()]
    folded_, own = broken(SometimesStraightThrough(made.model, way).eval(), by_brightness)

    assert own[20:].any()
    assert torch.equal(folded_, own)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_hook_of_the_backward_pass_meets_no_write_in_place(everywhere):
    # Such as of Grad-CAM: "Output 0 of BackwardHookFunction is a view and is being modified inplace".
    made, seen = problem("cnn", 1, 8, 8, count=4), []
    watch = lambda module, given, out: seen.append(module)  # noqa: E731
    if everywhere:
        hook = nn.modules.module.register_module_full_backward_hook(watch)
    else:
        hook = next(each for each in made.model.modules() if isinstance(each, nn.Conv2d)).register_full_backward_hook(
            watch
        )
    try:
        found = attack(made.model, made.x, made.y, PGD(0.1, steps=2))
    finally:
        hook.remove()

    assert seen
    assert torch.equal(found.x_adv, attack(made.model, made.x, made.y, PGD(0.1, steps=2)).x_adv)


NOISE = {
    "of each image": torch.randn_like,
    "of a shape that is read from the images": lambda x: torch.randn(x.shape),
}
ONCE = {  # what a trace draws once and for all
    "of a fixed shape": lambda x: torch.randn(8, 8),
    "of numpy": lambda x: np.random.standard_normal(),
    "a member that is seldom drawn": lambda x: float(random.random() < 0.01),
}


@pytest.mark.parametrize("noise", [*NOISE, *ONCE])
def test_a_randomized_model_is_folded_where_its_copy_draws_the_same_numbers(noise):
    made = problem("cnn", 1, 8, 8, count=4)
    net = Changed(made.model, before=lambda x: x + 0.1 * {**NOISE, **ONCE}[noise](x))
    with Classifier(net).session(made.x) as session:
        folded_ = session.search.folded

    assert folded_ == (noise in NOISE and can_be_traced(NOISE[noise]))


def can_be_traced(noise: Callable[[Tensor], Tensor]) -> bool:
    """False of a shape that is read from the images in torch 2.6, whose trace takes no such shape."""
    try:
        torch.fx.symbolic_trace(lambda x: x + noise(x))
    except TypeError:
        return False
    return True
