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
from robustkit.models.pretrained import weight_names

MODEL = "shufflenet_v2_x0_5"


@pytest.fixture
def published(monkeypatch) -> dict[str, Tensor]:
    """Weights made here in place of those that torchvision would fetch."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        state = torchvision.models.get_model(MODEL, weights=None).state_dict()
    enum = torchvision.models.get_model_weights(MODEL)
    monkeypatch.setattr(enum, "get_state_dict", lambda self, *args, **kwargs: state)
    return state


def test_imagenet_takes_the_default_weights_and_their_statistics(published):
    model = load_model(MODEL, dataset="imagenet")

    assert torch.equal(model.network.fc.weight, published["fc.weight"])
    assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert (model.size, model.gray, model.num_classes) == (None, False, 1000)
    assert model.source == f"{MODEL}, published weights IMAGENET1K_V1"


def test_own_statistics_win_over_the_published(published):
    model = load_model(MODEL, weights="imagenet1k_v1", mean=(0.5, 0.5, 0.5))

    assert model.mean.flatten().tolist() == [0.5, 0.5, 0.5]
    assert model.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])


def test_smaller_gray_images_are_shown_as_the_weights_expect(published):
    data = from_tensors(torch.zeros(3, 1, 40, 40), torch.arange(3))
    model = load_model(MODEL, dataset=data, weights="default")

    assert (model.size, model.gray) == (224, True)


def test_weights_of_other_classes_are_refused(published):
    with pytest.raises(UserError, match="know 1000 classes, and not those of digits"):
        load_model(MODEL, dataset="digits", weights="default")
    with pytest.raises(UserError, match="1000 classes, not 10"):
        load_model(MODEL, weights="default", num_classes=10)


def test_unknown_weights_list_those_there_are():
    with pytest.raises(UserError, match=r"no checkpoint file or published weights .*IMAGENET1K_V1"):
        load_model(MODEL, weights="IMAGENET1K_V9")
    assert weight_names("resnet50") == ["DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2"]


def test_without_a_connection_the_way_round_is_named(monkeypatch):
    def offline(self: object, *args: object, **kwargs: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torchvision.models.get_model_weights(MODEL), "get_state_dict", offline)

    with pytest.raises(UserError, match=r"no route to host.*connected machine.*--weights FILE"):
        load_model(MODEL, dataset="imagenet")


def test_only_classifiers_are_offered():
    assert "resnet18" in model_names()
    assert not [name for name in model_names() if "rcnn" in name or "fcn" in name or "quantized" in name]


def test_timm_that_is_not_installed_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)

    with pytest.raises(UserError, match=r"pip install 'robustkit\[timm\]'"):
        load_model("timm:resnet18", dataset="imagenet")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_a_misspelt_timm_name_gets_the_nearest():
    with pytest.raises(UserError, match=r"no timm model called 'resnet81'; did you mean"):
        load_model("timm:resnet81", dataset="imagenet")
