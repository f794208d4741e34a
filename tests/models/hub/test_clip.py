import string
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from robustkit.data import Dataset, from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model
from robustkit.models.fingerprint import fingerprint
from tests.models.hub.conftest import BODY

transformers: Any = pytest.importorskip("transformers")

CLASSES = ["cat", "dog", "traffic_light"]
LETTERS = [*string.ascii_lowercase, *string.digits, "."]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A tiny CLIP with random weights and a tokenizer that spells."""
    vocabulary = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = transformers.CLIPTokenizer(vocab=numbers, merges=[], model_max_length=40)
    body = {key: BODY[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    text = {**body, "vocab_size": len(numbers), "max_position_embeddings": 40,
            "bos_token_id": numbers["<|startoftext|>"], "eos_token_id": numbers["<|endoftext|>"]}  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=BODY, projection_dim=8))
        for weight in clip.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.3)
    clip.save_pretrained(tmp_path / "clip")
    size = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
    images = transformers.CLIPImageProcessor(**size)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path / "clip")
    return tmp_path / "clip"


def data() -> Dataset:
    x = torch.randint(0, 256, (3, 3, 20, 22), generator=torch.Generator().manual_seed(0)).float() / 255
    return from_tensors(x, torch.arange(3), class_names=CLASSES)


def pipeline(folder: Path, x: Tensor, prompts: list[str]) -> Tensor:
    processor = transformers.AutoProcessor.from_pretrained(folder)
    clip = transformers.CLIPModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return clip(**processor(text=prompts, images=list(255 * x), return_tensors="pt", padding=True)).logits_per_image


def test_logits_are_those_of_the_pipeline(folder):
    x = data().batch(range(3))[0]
    theirs = pipeline(folder, x, ["a photo of a cat.", "a photo of a dog.", "a photo of a traffic light."])

    with torch.no_grad():
        ours = load_model(f"clip:{folder}", dataset=data())(x)
    assert theirs.std(0).min() > 0.01
    assert torch.allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_two_classes_of_one_name_are_refused(folder):
    twice = from_tensors(data().batch(range(3))[0], torch.arange(3), class_names=["crane_bird", "dog", "crane bird"])

    with pytest.raises(UserError, match=r"called 'crane bird'.*classes=FILE"):
        load_model(f"clip:{folder}", dataset=twice)


def test_templates_are_averaged(folder, tmp_path):
    (tmp_path / "templates.txt").write_text("a {} in the snow\n\n{}\n")
    x = data().batch(range(3))[0]
    model = load_model(f"clip:{folder}(templates={tmp_path / 'templates.txt'})", dataset=data())

    clip = model.network
    single = [pipeline(folder, x, [f"a {name} in the snow", name]) for name in ("cat", "dog", "traffic light")]
    mean = torch.stack([logits.sum(1) for logits in single], 1)  # in the direction of the mean of two features
    with torch.no_grad():
        ours = model(x)
    assert torch.allclose(clip.class_features.norm(dim=1), torch.ones(3))
    assert torch.allclose((ours / mean).std(0), torch.zeros(3), atol=1e-4)


def test_the_image_tower_is_differentiable_and_the_text_tower_is_gone(folder):
    x = data().batch(range(3))[0].requires_grad_()
    model = load_model(f"clip:{folder}", dataset=data())

    (grad,) = torch.autograd.grad(model(x)[:, 0].sum(), x)
    assert grad.flatten(1).abs().sum(1).min() > 0
    assert not [name for name, _ in model.named_parameters() if "text" in name]


def test_other_class_names_are_another_model(folder, tmp_path):
    (tmp_path / "names.txt").write_text("bird\nfish\ntree\n")
    plain, again, named = (
        load_model(f"clip:{folder}{more}", dataset=data()) for more in ("", "", f"(classes={tmp_path / 'names.txt'})")
    )

    assert fingerprint(plain) == fingerprint(again) != fingerprint(named)


def test_class_names_of_a_file_stand_in_the_order_of_the_data(folder, tmp_path):
    """The logits stood in the order of the file, and labels in that of the data."""
    (tmp_path / "names.txt").write_text("traffic light\nbird\ncat\ndog\n")
    model = load_model(f"clip:{folder}(classes={tmp_path / 'names.txt'})", dataset=data())
    x = data().batch(range(3))[0]

    with torch.no_grad():
        plain, ours = load_model(f"clip:{folder}", dataset=data())(x), model(x)
    assert torch.allclose(ours[:, :3], plain, atol=1e-5)
    assert ours.shape == (3, 4)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("(template=a.txt)", "did you mean templates"),
        ("(templates=nosuch.txt)", r"There is no file nosuch\.txt"),
        ("", r"--dataset, or clip:.*\(classes=FILE\)"),
    ],
)
def test_what_is_missing_is_named(folder, more, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(f"clip:{folder}{more}")


def test_a_template_has_one_place_for_the_class(folder, tmp_path):
    (tmp_path / "templates.txt").write_text("a photo\n")

    with pytest.raises(UserError, match=r"must contain \{\} once"):
        load_model(f"clip:{folder}(templates={tmp_path / 'templates.txt'})", dataset=data())


def test_another_model_is_refused(saved):
    vit = saved("ViT", "ViTImageProcessor", {}, **BODY)

    with pytest.raises(UserError, match=r"is a vit and no CLIP model.*--model hf:"):
        load_model(f"clip:{vit}", dataset=data())


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)

    with pytest.raises(UserError, match="has no tokenizer"):
        load_model(f"clip:{folder}", dataset=data())
