import json
import shutil
import sys

import pytest
import torch

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model
from robustkit.models.fingerprint import fingerprint
from robustkit.models.model_file import save_model
from tests.models.hub.conftest import BODY

transformers = pytest.importorskip("transformers")

SQUARE = {"size": {"height": 16, "width": 16}}


@pytest.fixture
def vit(saved):
    return saved("ViT", "ViTImageProcessor", SQUARE, **BODY)


def images(count, channels, side):
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1))


def changed(folder, **settings):
    """The folder with other settings in its configuration."""
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in {**config, **settings}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_model_is_the_same_wherever_its_folder_lies(vit, tmp_path):
    moved = tmp_path / "elsewhere" / "model"
    shutil.copytree(vit, moved)
    first, second = (load_model(f"hf:{folder}") for folder in (vit, moved))

    assert fingerprint(first) == fingerprint(second)
    assert (first.name, first.source) == (second.name, second.source)


@pytest.mark.parametrize("settings", [{"num_attention_heads": 4}, {"hidden_act": "relu"}, {"layer_norm_eps": 0.1}])
def test_other_settings_with_the_same_weights_are_another_model(vit, settings):
    before = fingerprint(load_model(f"hf:{vit}"))
    changed(vit, **settings)

    assert fingerprint(load_model(f"hf:{vit}")) != before


def test_images_of_the_right_size_are_only_normalised(saved):
    crop = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}, "resample": 2}
    folder, x = saved("ViT", "DeiTImageProcessor", crop, **BODY), images(2, 3, 16)
    model = load_model(f"hf:{folder}")

    with torch.no_grad():
        assert torch.equal(model(x), model.network.network((x - model.mean) / model.std).logits)


def test_gray_images_are_repeated(vit):
    x = images(2, 1, 8)
    model = load_model(f"hf:{vit}", dataset=from_tensors(x, torch.arange(2)))

    with torch.no_grad():
        assert torch.allclose(model(x), load_model(f"hf:{vit}")(x.expand(-1, 3, -1, -1)), atol=1e-6)


def test_logits_come_in_the_order_of_the_data(vit):
    changed(vit, id2label={str(number): f"kind_{9 - number}, of some sort" for number in range(10)})
    x = images(3, 3, 16)
    plain = load_model(f"hf:{vit}")
    model = load_model(
        f"hf:{vit}", dataset=from_tensors(x, torch.arange(3), class_names=["Kind 2", "kind 0", "kind 1"])
    )

    with torch.no_grad():
        assert torch.equal(model(x), plain(x)[:, [7, 9, 8, 0, 1, 2, 3, 4, 5, 6]])


def test_classes_that_are_called_otherwise_in_part_are_not_accepted_in_silence(vit):
    """The data's "cat" was judged as the model's "hen", because another class had the same name and place."""
    changed(vit, id2label={str(number): name for number, name in enumerate(["tench", "hen", *"abcdefgh"])})
    said = []
    data = from_tensors(images(3, 3, 16), torch.arange(3), class_names=["tench", "cat", "a"])
    load_model(f"hf:{vit}", dataset=data, report=lambda text, share: said.append(text))

    assert len(said) == 1
    assert "1 of the 3 classes" in said[0]
    assert "'cat' is taken for its 'hen'" in said[0]


def test_tuned_weights_replace_those_of_the_folder(vit, tmp_path):
    model, file = load_model(f"hf:{vit}"), tmp_path / "tuned.safetensors"
    with torch.no_grad():
        model.network.network.classifier.bias.add_(1)
    save_model(file, model, f"hf:{vit}", "tuned", {})
    x = images(2, 3, 16)

    with torch.no_grad():
        assert torch.equal(load_model(f"hf:{vit}", weights=file)(x), model(x))
    with pytest.raises(UserError, match=r"must not choose.*--model hf:.* --weights"):
        load_model(str(file))


def test_no_image_classifier_is_refused_with_the_way_out(vit, tmp_path):
    with torch.random.fork_rng():
        transformers.ViTModel(transformers.ViTConfig(**BODY)).save_pretrained(tmp_path / "body")
    changed(vit, architectures=["CLIPModel"], model_type="clip")

    with pytest.raises(UserError, match="is a ViTModel and no image classifier; name a model whose"):
        load_model(f"hf:{tmp_path / 'body'}")
    with pytest.raises(UserError, match="--model clip:"):
        load_model(f"hf:{vit}")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"architectures": None, "num_labels": 3, "id2label": None}, r"classifier\.bias .*\[10\].*asks for \[3\]"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}}, r"code of its own .*never runs.*FILE\.py"),
        ({"model_type": "nosuch"}, "transformers cannot load"),
        ({"model_type": None}, "names no model_type"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "is quantised"),
        ({"model_type": "timm_wrapper", "architecture": "resnet18"}, "--model timm:resnet18"),
        ({"_attn_implementation": "somebody/kernel"}, "may be code from the hub"),
        ({"vision": [{"attn_implementation": {"": "some/code"}}]}, "some/code"),
        ({"hidden_size": 12}, "has the shape .* asks for"),
        ({"hidden_size": 10**6}, r"with [\d,]+ weights, and [\d,]+ are stored"),
        ({"num_hidden_layers": 10**12}, "asks for 1000000000000 layers"),
        ({"image_size": 10**7}, "are stored"),
        ({"hidden_size": "many"}, "transformers cannot load"),
    ],
)
def test_a_configuration_that_makes_no_classifier_is_refused(vit, settings, sentence):
    (vit / "code.py").write_text("raise SystemExit(1)")
    changed(vit, **settings)

    with pytest.raises(UserError, match=sentence):
        load_model(f"hf:{vit}")


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_broken_weights_are_one_line(vit, content):
    (vit / "model.safetensors").write_bytes(content)

    with pytest.raises(UserError, match=r"transformers cannot load .*copy it again"):
        load_model(f"hf:{vit}")


def test_a_missing_library_names_the_command(vit, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(UserError, match=r"pip install transformers"):
        load_model(f"hf:{vit}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"train": True, "dataset": "digits"}, "has weights of its own; leave out .*--train"),
        ({"weights": "default"}, "has weights of its own; leave out --weights"),
        ({"num_classes": 7}, "10 classes, not 7"),
    ],
)
def test_options_of_other_models_are_refused(vit, arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(f"hf:{vit}", **arguments)


def test_weights_of_another_number_of_classes_do_not_ask_for_an_option_that_is_refused(vit, tmp_path):
    """It said: pass --num-classes 4; and then: leave out --num-classes."""
    state = load_model(f"hf:{vit}").network.network.state_dict()
    last = {"classifier.weight": torch.zeros(4, 16), "classifier.bias": torch.zeros(4)}
    torch.save({**state, **last}, tmp_path / "a.pt")

    with pytest.raises(UserError, match="name a model with 4 classes"):
        load_model(f"hf:{vit}", weights=tmp_path / "a.pt")
