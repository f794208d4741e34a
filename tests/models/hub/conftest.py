"""Tiny networks of transformers with random weights, saved as their library saves them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

BODY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "image_size": 16, "patch_size": 8}  # fmt: skip
Saved = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def saved(tmp_path) -> Saved:
    """A function that saves a network of a family with an image processor, and returns the folder."""

    transformers = pytest.importorskip("transformers")

    def save(family: str, processor: str, settings: dict[str, Any], name: str = "model", **config: Any) -> Path:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            settings_of_network = getattr(transformers, f"{family}Config")(**{"num_labels": 10, **config})
            network = getattr(transformers, f"{family}ForImageClassification")(settings_of_network).eval()
            _randomise(network)
        folder = tmp_path / name
        network.save_pretrained(folder)
        getattr(transformers, processor)(**settings).save_pretrained(folder)
        return folder

    return save


def _randomise(network: torch.nn.Module) -> None:
    """Weights large enough that logits differ from image to image."""
    for name, weight in network.named_parameters():
        if weight.dim() > 1 or "scale" in name:
            torch.nn.init.normal_(weight, std=0.3)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(buffer, std=0.1)
