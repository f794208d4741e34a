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
def test_small_images_keep_their_pixels_in_a_resnet(name):
    network = with_stem(build_torchvision(name, 10), stem_for((1, 8, 8)), (1, 8, 8)).network.eval()
    seen = []
    network.layer1.register_forward_hook(lambda module, args, output: seen.append(args[0].shape))

    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert seen == [(2, 64, 8, 8)]


def test_large_images_see_the_published_stem():
    fitted = with_stem(build_torchvision("resnet18", 10), stem_for((1, 96, 96)), (1, 96, 96))

    assert fitted.network.conv1.weight.shape == (64, 3, 7, 7)
    assert fitted.network.maxpool.kernel_size == 3
    assert fitted.gray


def test_the_side_of_64_is_the_last_small_one():
    assert (stem_for((3, 64, 64)), stem_for((3, 65, 65))) == (Stem(3, 3), Stem(7, 3))


@pytest.mark.parametrize(("name", "size"), [("mobilenet_v3_small", 32), ("alexnet", 64), ("vit_b_32", 224)])
def test_others_see_the_smallest_square_they_work_on(name, size):
    fitted = with_resizing(build_torchvision(name, 10), name, (1, 8, 8))

    assert (fitted.size, fitted.gray) == (size, True)


def test_images_that_work_as_they_are_stay_as_they_are():
    fitted = with_resizing(build_torchvision("mobilenet_v3_small", 10), "mobilenet_v3_small", (3, 48, 40))

    assert (fitted.size, fitted.gray) == (None, False)


def test_images_with_two_channels_need_a_network_of_ones_own():
    with pytest.raises(UserError, match="these images have 2"):
        with_resizing(build_torchvision("mobilenet_v3_small", 10), "mobilenet_v3_small", (2, 32, 32))
