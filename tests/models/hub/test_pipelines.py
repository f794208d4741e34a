"""Networks of transformers give the logits of their own pipeline, an image processor before a model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model
from tests.models.hub.conftest import BODY

transformers = pytest.importorskip("transformers")

CENTRE = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}
SQUARE = {"size": {"height": 16, "width": 16}}
STAGES = {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2}
FAMILIES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "ViT": ("ViT", "ViTImageProcessor", SQUARE, BODY),
    "ResNet": ("ResNet", "ConvNextImageProcessor", {"size": {"shortest_edge": 28}},
               {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}),
    "ConvNext": ("ConvNext", "ConvNextImageProcessor", {"size": {"shortest_edge": 384}, "resample": 2}, STAGES),
    "Swin": ("Swin", "ViTImageProcessor", {**SQUARE, "resample": 3},
             {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2],
              "window_size": 2}),
    "DeiT": ("DeiT", "DeiTImageProcessor", CENTRE, BODY),
    "BEiT": ("Beit", "BeitImageProcessor", {**CENTRE, "do_center_crop": True, "image_mean": [0.4, 0.5, 0.6]},
             {**BODY, "use_relative_position_bias": True}),
    "MobileNetV2": ("MobileNetV2", "MobileNetV2ImageProcessor", CENTRE,
                    {"image_size": 16, "depth_multiplier": 0.25, "min_depth": 4}),
    "EfficientNet's images": ("ViT", "EfficientNetImageProcessor",
                              {**SQUARE, "resample": 2, "do_center_crop": False, "rescale_factor": 1 / 127.5,
                               "rescale_offset": True}, BODY),
    "MobileViT's images": ("ViT", "MobileViTImageProcessor", {**CENTRE, "resample": 2}, BODY),
    "LeViT's images": ("ViT", "LevitImageProcessor", {**CENTRE, "size": {"shortest_edge": 16}}, BODY),
    "PoolFormer's images": ("ViT", "PoolFormerImageProcessor", {**CENTRE, "size": {"shortest_edge": 16}}, BODY),
    "images with a border": ("ViT", "CLIPImageProcessor", {"crop_size": {"height": 48, "width": 48}, "do_resize": False,
                                                             "do_normalize": False},
                             {**BODY, "image_size": 48}),
}  # fmt: skip


def pictures(side: int, count: int = 3) -> Tensor:
    """Images of 8-bit values in [0, 1]."""
    numbers = torch.randint(0, 256, (count, 3, side, side + 2), generator=torch.Generator().manual_seed(0))
    return numbers.float() / 255


def pipeline(folder: Path, x: Tensor) -> Tensor:
    """What transformers itself answers."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="torchvision")
    network = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        # Floats: of 8-bit images the library rounds the resized ones.
        return network(**processor(images=list(255 * x), return_tensors="pt")).logits


def test_logits_of_a_picture_are_those_of_the_pipeline(saved):
    folder, x = saved("ViT", "ViTImageProcessor", SQUARE, **BODY), pictures(16)[:, :, :, :16]
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    network = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()

    with torch.no_grad():
        theirs = network(**processor(images=[to_pil_image(each) for each in x], return_tensors="pt")).logits
        assert torch.allclose(load_model(f"hf:{folder}")(x), theirs, atol=1e-5, rtol=1e-5)


def test_a_resizing_without_a_gradient_is_refused_with_advice_that_helps(saved):
    """The advice was to give images of the network's size, which were refused, too."""
    folder = saved("ViT", "ViTImageProcessor", {**SQUARE, "resample": 1}, **BODY)

    with pytest.raises(UserError, match=r"Pillow's method 1, .* in a function of yours"):
        load_model(f"hf:{folder}", dataset=from_tensors(pictures(16)[:, :, :, :16], torch.arange(3)))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_pipeline(family, saved):
    folder, x = saved(*FAMILIES[family][:3], **FAMILIES[family][3]), pictures(30)
    theirs = pipeline(folder, x)
    model = load_model(f"hf:{folder}", dataset=from_tensors(x, torch.arange(3)))

    with torch.no_grad():
        ours = model(x)
    assert ours.shape == (3, 10)
    assert theirs.std(0).min() > 1e-4
    assert torch.allclose(ours, theirs, atol=1e-5, rtol=1e-5)
