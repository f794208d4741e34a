from functools import cache

import pytest
import torch
from robustkit.attacks import APGD, SoftAPGD
from torch import Tensor, nn
from torchvision.models import resnet18

import robustkit
from robustkit import Classifier
from robustkit.nethook import soft_kinks
from tests.attacks.kinks import dead_end, noted_widths
from tests.attacks.queries import gradient, plain_gradient
from tests.problems import filled, images, trials
from tests.small import cnn


@pytest.mark.filterwarnings("ignore:.*exactly zero")
def test_it_leaves_a_flat_region_that_apgd_does_not():
    x, y = torch.full((4, 8), 0.3), torch.zeros(4, dtype=torch.long)

    plain = robustkit.attack(dead_end(), x, y, APGD(eps=0.4, steps=20))
    soft = robustkit.attack(dead_end(), x, y, SoftAPGD(eps=0.4, steps=20, widest=0.5))

    assert not plain.success.any()
    assert soft.success.all()


def test_gradients_sharpen_from_the_first_step_to_the_last(monkeypatch):
    seen = noted_widths(monkeypatch, "soft_apgd")
    attack = SoftAPGD(eps=0.01, steps=5, widest=0.16, narrowest=0.01, pooling=0.5)
    robustkit.attack(dead_end(), torch.full((1, 8), 0.3), torch.zeros(1, dtype=torch.long), attack)

    widths = [0.16, 0.08, 0.04, 0.02, 0.01]
    assert sorted({round(width, 6) for width, _ in seen}, reverse=True) == widths
    assert all(abs(pooling - width / 2) < 1e-7 for width, pooling in seen)


class TokensFirst(nn.Module):
    """Its hidden layer has the shape `[tokens, B, width]`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.unflatten(1, (4, 6)).transpose(0, 1)).relu()).mean(0)


class Doubled(nn.Module):
    """It also judges the image in reverse, in rows behind those of all images."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(torch.cat([x, x.flip(1)])).unflatten(0, (2, -1)).mean(0)


@pytest.mark.parametrize("kind", [TokensFirst, Doubled])
def test_layers_whose_rows_are_no_images_give_the_same_bits_in_any_batch(kind):
    """The width at a kink was that of another image, or of the largest value of all."""
    torch.manual_seed(0)
    net, x = kind().eval(), images(12, 24)
    y, method = net(x).argmax(1), SoftAPGD(eps=0.1, steps=5)
    one, *others = (robustkit.attack(net, x, y, method, batch_size=size) for size in (64, 1, 7))

    assert 0 < one.success.sum() < len(y)
    assert all(torch.equal(one.x_adv, other.x_adv) for other in others)


def test_on_a_network_without_kinks_it_is_apgd():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(27, 16), nn.Tanh(), nn.Linear(16, 3)).eval()
    x = torch.rand(6, 3, 3, 3)
    y = net(x).argmax(1)

    plain, soft = (robustkit.attack(net, x, y, kind(eps=0.02, steps=10)) for kind in (APGD, SoftAPGD))

    assert torch.equal(plain.x_adv, soft.x_adv)


@pytest.mark.skipif(torch.__version__ < (2, 9), reason="older versions of torch write another format")
def test_kinks_are_softened_in_an_exported_program_too(tmp_path):
    net, x = cnn().eval(), torch.rand(2, 1, 8, 8, requires_grad=True)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    exported = robustkit.load_model(str(tmp_path / "net.pt2"))
    plain = torch.autograd.grad(net(x).square().sum(), x)[0]

    with soft_kinks():
        own, loaded = (torch.autograd.grad(model(x).square().sum(), x)[0] for model in (net, exported))

    assert torch.allclose(own, loaded, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(own, plain, rtol=1e-2, atol=1e-2)


@cache
def _resnet() -> tuple[nn.Module, Tensor, Tensor]:
    net, x, y = filled(resnet18(num_classes=10), gain=1.4), images(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    attack = SoftAPGD(eps=0.1, loss="ce")
    return net, gradient(attack, net, x, y), plain_gradient(attack, net, x, y)


@pytest.mark.parametrize(
    "layout",
    [pytest.param({"channels_last": False}, marks=pytest.mark.slow), {"channels_last": True}],
    ids=["folded", "channels last"],
)
def test_folded_copies_are_softened_as_the_network_itself(layout):
    net, own, plain = _resnet()
    attack, x, y = SoftAPGD(eps=0.1, loss="ce"), images(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    calls = []

    with Classifier(net, **layout).session(x) as session:
        counted = net.register_forward_hook(lambda *_: calls.append(1))
        seen = session.query(attack, attack.init(trials(x, y)))
        counted.remove()

    assert session.search.folded
    assert not calls
    assert (seen.grad - own).norm() < 1e-3 * own.norm()
    assert (seen.grad - plain).norm() > 0.1 * own.norm()


def test_kinks_are_softened_beside_a_compiled_network(monkeypatch):
    def unseen(network: nn.Module, mode: str | None) -> nn.Module:
        return lambda x: pytest.fail("a graph was asked, in which kinks are not seen")

    monkeypatch.setattr(torch, "compile", unseen)
    net, x, y = cnn().eval(), images(2, 1, 8, 8), torch.zeros(2, dtype=torch.long)
    attack = SoftAPGD(eps=0.1)

    with Classifier(net, compile=True).session(x) as session:
        seen = session.query(attack, attack.init(trials(x, y)))

    assert torch.allclose(seen.grad, gradient(attack, net, x, y), rtol=1e-4, atol=1e-6)
