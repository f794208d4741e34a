import pytest
import torch
from torch import fx, nn

from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import PixelModel
from robustkit.models.preprocessing import Normalisation


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()


def model(inner: nn.Module | None = None, **preprocessing: object) -> PixelModel:
    return PixelModel(inner or network(), name="a", source="", num_classes=5, **preprocessing)


def pixels(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def test_without_preprocessing_the_network_gets_the_pixels():
    x = pixels(2, 3, 8, 8)

    assert torch.equal(model()(x), network()(x))


def test_each_channel_is_normalised_with_its_own_statistics():
    x = pixels(2, 3, 8, 8)

    by_hand = torch.stack([(x[:, 0] - 0.1) / 0.5, x[:, 1] - 0.2, (x[:, 2] - 0.3) / 2], dim=1)
    normalised = model(normalisation=Normalisation((0.1, 0.2, 0.3), (0.5, 1, 2)))
    assert torch.allclose(normalised(x), network()(by_hand), atol=1e-6)  # float32 rounding


def test_gray_images_become_three_channels_of_the_wanted_size():
    enlarged = model(size=32, gray=True)(torch.full((2, 1, 8, 8), 0.5))

    assert torch.allclose(enlarged, network()(torch.full((2, 3, 32, 32), 0.5)), atol=1e-6)


def test_all_preprocessing_can_be_traced_and_is_no_part_of_the_state_dict():
    x = pixels(2, 1, 8, 8)
    full = model(size=16, gray=True, normalisation=Normalisation([0.5] * 3, [0.2] * 3))

    assert torch.equal(fx.symbolic_trace(full)(x), full(x))
    assert all(key.startswith("network.") for key in full.state_dict())


@pytest.mark.parametrize(
    ("mean", "std", "sentence"),
    [
        ((0.5,), (0.0,), "std must be positive"),
        ((0.5, 0.5), (0.1,), "mean has 2 numbers and std 1"),
        ((123.7,), (58.4,), "divide it by 255"),
    ],
)
def test_impossible_statistics_are_refused(mean, std, sentence):
    with pytest.raises(UserError, match=sentence):
        model(normalisation=Normalisation(mean, std))


def test_the_fingerprint_changes_with_everything_that_decides_the_logits():
    changed = network()
    with torch.no_grad():
        changed[3].bias[0] += 1e-6
    models = [
        model(), model(changed), model(nn.Sequential(*network(), nn.ReLU())), model(size=32), model(gray=True),
        model(normalisation=Normalisation((0.5,), (1.0,))), model(normalisation=Normalisation((0.4,), (1.0,))),
    ]  # fmt: skip
    prints = [fingerprint(each) for each in models]

    assert len(set(prints)) == len(prints)
    assert prints[0] == fingerprint(model())
