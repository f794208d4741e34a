import importlib.util
import sys
from urllib.error import URLError

import pytest
import torch
import torchvision
from torch import Tensor

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model, model_names

MODEL = "shufflenet_v2_x0_5"
WEIGHTS = torchvision.models.get_model_weights(MODEL)


@pytest.fixture
def published(monkeypatch) -> dict[str, Tensor]:
    """Weights made here instead of those that torchvision would download."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        state = torchvision.models.get_model(MODEL, weights=None).state_dict()
    monkeypatch.setattr(WEIGHTS, "get_state_dict", lambda self, *args, **kwargs: state)
    return state


def test_imagenet_takes_the_default_weights_and_their_statistics(published):
    model = load_model(MODEL, dataset="imagenet")

    assert torch.equal(model.network.fc.weight, published["fc.weight"])
    assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert (model.size, model.gray, model.num_classes) == (None, False, 1000)
    assert model.source == f"{MODEL}, published weights IMAGENET1K_V1"


def test_given_statistics_replace_the_published_ones(published):
    model = load_model(MODEL, weights="imagenet1k_v1", mean=(0.5, 0.5, 0.5))

    assert model.mean.flatten().tolist() == [0.5, 0.5, 0.5]
    assert model.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])


def test_smaller_gray_images_are_converted_to_what_the_weights_expect(published):
    data = from_tensors(torch.zeros(3, 1, 40, 40), torch.arange(3))
    model = load_model(MODEL, dataset=data, weights="default")

    assert (model.size, model.gray) == (224, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dataset": "digits", "weights": "default"}, "have 1000 classes, and not those of digits"),
        ({"weights": "default", "num_classes": 10}, "1000 classes, not 10"),
        ({"weights": "IMAGENET1K_V9"}, r"no checkpoint file or published weights .*DEFAULT.*IMAGENET1K_V1"),
    ],
)
def test_weights_that_do_not_exist_or_do_not_fit_are_refused(published, arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(MODEL, **arguments)


def test_a_failed_download_names_another_way(monkeypatch):
    def offline(self: object, *args: object, **kwargs: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(WEIGHTS, "get_state_dict", offline)

    with pytest.raises(UserError, match=r"no route to host.*connected machine.*--weights FILE"):
        load_model(MODEL, dataset="imagenet")


def test_only_classifiers_are_offered():
    assert "resnet18" in model_names()
    assert not [name for name in model_names() if "rcnn" in name or "fcn" in name or "quantized" in name]


def test_timm_that_is_not_installed_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)

    with pytest.raises(UserError, match=r"pip install timm"):
        load_model("timm:resnet18", dataset="imagenet")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_a_misspelt_timm_name_gets_the_nearest():
    with pytest.raises(UserError, match=r"no timm model called 'resnet81'; did you mean"):
        load_model("timm:resnet81", dataset="imagenet")
