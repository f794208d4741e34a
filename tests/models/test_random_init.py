"""`--random-init`: an architecture without weights."""

import pytest
import torch

from robustkit.errors import UserError
from robustkit.models import load_model

NAME = "shufflenet_v2_x0_5"


def test_random_weights_are_equal_each_time_and_fit_the_data():
    first, second = (load_model(NAME, dataset="digits", random_init=True) for _ in range(2))

    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    assert first(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert first.source == f"{NAME}, random weights"


def test_an_architecture_of_timm_may_be_random():
    pytest.importorskip("timm")
    model = load_model("timm:resnet10t", dataset="digits", random_init=True)

    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_an_architecture_of_timm_on_imagenet_is_normalised_as_timm_says():
    pytest.importorskip("timm")
    model = load_model("timm:vit_tiny_patch16_224", dataset="imagenet", random_init=True)

    assert model.mean.flatten().tolist() == model.std.flatten().tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        (NAME, {"weights": "default"}, "leave out --weights"),
        (NAME, {"train": True}, "leave out .*--train"),
        ("net.py:make", {}, "for architectures of torchvision and timm, not for net.py:make"),
    ],
)
def test_random_weights_beside_others_are_refused(name, more, words):
    with pytest.raises(UserError, match=words):
        load_model(name, dataset="digits", random_init=True, **more)
