import pytest
import torch
from torch import fx, nn

from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import PixelModel


def network(channels: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()


def pixels(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def test_without_wishes_the_network_is_asked_as_it_is():
    inner, x = network(), pixels(2, 3, 8, 8)

    assert torch.equal(PixelModel(inner, name="a", source="", num_classes=5)(x), inner(x))


def test_channels_are_normalised_each_by_its_own():
    inner, x = network(), pixels(2, 3, 8, 8)
    model = PixelModel(inner, name="a", source="", num_classes=5, mean=(0.1, 0.2, 0.3), std=(0.5, 1, 2))

    by_hand = torch.stack([(x[:, 0] - 0.1) / 0.5, x[:, 1] - 0.2, (x[:, 2] - 0.3) / 2], dim=1)
    assert torch.allclose(model(x), inner(by_hand), atol=1e-6)  # float32 rounding


def test_gray_images_become_three_channels_of_the_wanted_size():
    inner, x = network(), torch.full((2, 1, 8, 8), 0.5)
    model = PixelModel(inner, name="a", source="", num_classes=5, size=32, gray=True)

    assert torch.allclose(model(x), inner(torch.full((2, 3, 32, 32), 0.5)), atol=1e-6)


def test_all_of_it_can_be_traced():
    x = pixels(2, 1, 8, 8)
    model = PixelModel(network(), name="a", source="", num_classes=5, size=16, gray=True, mean=[0.5] * 3, std=[0.2] * 3)

    assert torch.equal(fx.symbolic_trace(model)(x), model(x))


def test_the_state_dict_holds_weights_only():
    model = PixelModel(network(), name="a", source="", num_classes=5, mean=(0.5,), std=(0.2,))

    assert all(key.startswith("network.") for key in model.state_dict())


@pytest.mark.parametrize(
    ("mean", "std", "sentence"),
    [
        ((0.5,), (0.0,), "std must be positive"),
        ((0.5, 0.5), (0.1,), "mean has 2 numbers and std 1"),
        ((123.7,), (58.4,), "divide it by 255"),
    ],
)
def test_statistics_that_cannot_be_are_refused(mean, std, sentence):
    with pytest.raises(UserError, match=sentence):
        PixelModel(network(), name="a", source="", num_classes=5, mean=mean, std=std)


def test_the_fingerprint_feels_every_bit_that_decides():
    def print_of(inner: nn.Module, **wishes: object) -> str:
        return fingerprint(PixelModel(inner, name="a", source="", num_classes=5, **wishes))

    changed = network()
    with torch.no_grad():
        changed[3].bias[0] += 1e-6
    other_structure = nn.Sequential(*network(), nn.ReLU())
    prints = [
        print_of(network()),
        print_of(changed),
        print_of(other_structure),
        print_of(network(), size=32),
        print_of(network(), gray=True),
        print_of(network(), mean=(0.5,)),
        print_of(network(), mean=(0.4,)),
    ]

    assert len(set(prints)) == len(prints)
    assert prints[0] == print_of(network())
