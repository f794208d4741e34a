"""Commands with a Hugging Face folder as the model."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torchvision.utils import save_image

from tests.cli.conftest import DATA

transformers: Any = pytest.importorskip("transformers")

RUN = ("evaluate", "-q", *DATA, "-n", "8", "-a", "fgsm", "--eps", "0.1", "--out", "run")


@pytest.fixture
def vit(place) -> str:
    save_vit(place / "runs" / "vit", 3)
    return "hf:runs/vit"


def save_vit(folder: Path, channels: int) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_channels=channels, id2label={number: f"kind {number}" for number in range(10)},
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    half = [0.5] * channels
    processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=half, image_std=half)
    processor.save_pretrained(folder)


def test_a_run_goes_on_after_its_model_was_moved(robustkit, place, vit):
    first = robustkit(*RUN, "-m", vit)
    before = (place / "run" / "results.csv").read_bytes()
    shutil.move(place / "runs", place / "moved")
    again = robustkit(*RUN, "-m", "hf:moved/vit")

    assert (first.status, again.status) == (0, 0), again.err
    assert (place / "run" / "results.csv").read_bytes() == before


def test_two_folders_of_one_name_are_told_apart(robustkit, place, vit):
    shutil.copytree(place / "runs", place / "old")
    robustkit(*RUN, "-m", vit, "-m", "hf:old/vit")

    assert pd.read_csv(place / "run" / "results.csv").model.unique().tolist() == ["vit", "old-vit"]


def test_pictures_are_resized_for_the_model_and_get_its_labels(robustkit, place, vit):
    save_image(torch.rand(1, 3, 24, 30, generator=torch.Generator().manual_seed(0)), place / "cat.png")
    printed = robustkit("attack", "cat.png", "-m", vit, "--eps", "0.5", "-a", "fgsm", "-q")

    assert printed.status == 0, printed.err
    assert "cat.png: kind" in printed.out
    assert "size 16x16" in printed.out


def test_a_network_of_gray_images_gets_gray_pictures(robustkit, place):
    save_vit(place / "gray", 1)
    save_image(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)), place / "cat.png")
    printed = robustkit("attack", "cat.png", "-m", "hf:gray", "--eps", "0.5", "-a", "fgsm", "-q")

    assert printed.status == 0, printed.err


def test_the_layers_of_a_trace_have_the_librarys_names(robustkit, place, vit):
    printed = robustkit("trace", "-q", *DATA, "-m", vit, "-n", "30", "--eps", "0.1", "--out", "trace")

    assert printed.status == 0, printed.err
    assert "vit.layers.0.attention" in (place / "trace" / "trace.csv").read_text()
