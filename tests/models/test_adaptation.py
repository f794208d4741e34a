import pytest
import torch

from robustkit.errors import UserError
from robustkit.models.adaptation import Stem, build_torchvision, stem_for, with_resizing, with_stem


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", ["resnet18", "resnext50_32x4d"])
def test_small_images_keep_their_resolution_in_a_resnet(name):
    network = with_stem(build_torchvision(name, 10), stem_for((1, 8, 8)), (1, 8, 8)).network.eval()
    shapes = []
    network.layer1.register_forward_hook(lambda module, args, output: shapes.append(args[0].shape))

    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert shapes == [(2, 64, 8, 8)]


def test_from_65_pixels_on_the_published_stem_is_used():
    adapted = with_stem(build_torchvision("resnet18", 10), stem_for((1, 65, 65)), (1, 65, 65))

    assert stem_for((3, 64, 64)) == Stem(3, 3)
    assert adapted.network.conv1.weight.shape == (64, 3, 7, 7)
    assert adapted.network.maxpool.kernel_size == 3
    assert adapted.gray


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("mobilenet_v3_small", (1, 8, 8), 32),
        ("alexnet", (1, 8, 8), 64),
        ("vit_b_32", (1, 8, 8), 224),
        ("mobilenet_v3_small", (3, 48, 40), None),
    ],
)
def test_images_are_resized_to_the_smallest_square_that_works_and_only_if_needed(name, shape, size):
    adapted = with_resizing(build_torchvision(name, 10), name, shape)

    assert (adapted.size, adapted.gray) == (size, shape[0] == 1)


def test_images_with_two_channels_need_a_network_of_the_user():
    with pytest.raises(UserError, match="these images have 2"):
        with_resizing(build_torchvision("mobilenet_v3_small", 10), "mobilenet_v3_small", (2, 32, 32))
