import hashlib
import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import save_file
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
    model = load_model(MODEL, weights="imagenet1k_v1", mean=(0.5, 0.5, 0.5), std=(1, 2, 3))

    assert model.mean.flatten().tolist() == [0.5, 0.5, 0.5]
    assert model.std.flatten().tolist() == [1, 2, 3]


@pytest.mark.parametrize("one", [{"mean": (0.5, 0.5, 0.5)}, {"std": (0.2, 0.2, 0.2)}])
def test_mean_without_std_is_refused(one):
    # The other was taken as 0 or 1 without a word, or as that of the published weights.
    for more in ({"weights": "default"}, {"dataset": "digits", "random_init": True}):
        with pytest.raises(UserError, match="mean and std belong together: give both or neither"):
            load_model(MODEL, **more, **one)


def test_smaller_gray_images_are_converted_to_what_the_weights_expect(published):
    data = from_tensors(torch.zeros(3, 1, 40, 40), torch.arange(3))
    model = load_model(MODEL, dataset=data, weights="default")

    assert (model.size, model.gray) == (224, True)


@pytest.fixture
def file(tmp_path, monkeypatch, published) -> Path:
    """A file that has the hash of published weights."""
    path = tmp_path / "renamed.pth"
    torch.save(published, path)
    start = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    entry = WEIGHTS.IMAGENET1K_V1
    monkeypatch.setattr(entry, "_value_", replace(entry.value, url=f"https://example.org/net-{start}.pth"))
    return path


def test_a_file_of_published_weights_is_normalised_as_they_are(file):
    # The command that offline users are sent to attacked a network on pixels that it had never seen.
    model = load_model(MODEL, weights=file)

    assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert model.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])
    assert load_model(MODEL, weights=file, mean=(0, 0, 0), std=(1, 2, 3)).std.flatten().tolist() == [1, 2, 3]


def test_other_weights_are_not_normalised_and_the_run_says_so(file):
    torch.save({key: value + 1 for key, value in torch.load(file).items()}, file)
    said: list[str] = []
    model = load_model(MODEL, weights=file, report=lambda text, share: said.append(text))

    assert not model.normalises
    assert said == [f"{MODEL}: pixels are not normalised; if they were in training, give --mean and --std"]

    load_model(MODEL, weights=file, mean=(0.5, 0.5, 0.5), std=(1, 1, 1), report=lambda text, share: said.append(text))

    assert len(said) == 1


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_a_timm_network_on_imagenet_is_normalised_as_timm_says(tmp_path):
    # All were normalised as torchvision's: a vision transformer's logits were off by 13.
    name = "vit_tiny_patch16_224"
    with torch.random.fork_rng():
        save_file(importlib.import_module("timm").create_model(name).state_dict(), tmp_path / "vit.safetensors")
    model = load_model(f"timm:{name}", dataset="imagenet", weights=tmp_path / "vit.safetensors")

    assert model.mean.flatten().tolist() == model.std.flatten().tolist() == [0.5, 0.5, 0.5]


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize(
    ("built", "words"),
    [({"in_chans": 1}, "in_chans=1"), ({"img_size": 32}, "img_size=..."), ({"patch_size": 8}, "name the architecture")],
)
def test_weights_of_a_timm_network_for_other_images_name_the_argument(built, words, tmp_path):
    # The error asked for another architecture, and there is none.
    name = "vit_tiny_patch16_224"
    with torch.random.fork_rng():
        network = importlib.import_module("timm").create_model(name, num_classes=10, **built)
    save_file(network.state_dict(), tmp_path / "vit.safetensors")

    with pytest.raises(UserError, match=re.escape(words)):
        load_model(f"timm:{name}", weights=tmp_path / "vit.safetensors", num_classes=10)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize(
    "name",
    [
        "vit_small_patch16_224.dino",  # its 384 features were attacked as if they were 384 classes
        "vit_base_patch16_clip_224.openai",  # timm says that it has 512 classes
        "convnext_base.clip_laion2b",
        "vit_pe_core_small_patch16_384.fb",
    ],
)
def test_the_features_of_a_timm_backbone_are_not_taken_for_classes(name):
    data = from_tensors(torch.zeros(2, 3, 224, 224), torch.arange(2))

    with pytest.raises(UserError, match=rf"{re.escape(name)} .* features and no classes; .*--weights FILE"):
        load_model(f"timm:{name}", dataset=data, weights="default")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("name", ["vit_base_patch16_clip_224", "convnext_base.clip_laion2b_augreg_ft_in12k"])
def test_a_fine_tuned_clip_tower_of_timm_is_a_classifier(name, monkeypatch):
    def classifier(*args: object, **more: object) -> None:
        raise OSError("asked for its weights")

    monkeypatch.setattr(importlib.import_module("timm"), "create_model", classifier)

    with pytest.raises(UserError, match="asked for its weights"):
        load_model(f"timm:{name}", dataset="imagenet", weights="default")


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


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_a_misspelt_tag_of_timm_gets_the_nearest():
    """It was called a bug in robustkit."""
    with pytest.raises(UserError, match=r"no timm model called 'resnet18\.a4_in1k'; did you mean resnet18\.a"):
        load_model("timm:resnet18.a4_in1k", dataset="imagenet")
