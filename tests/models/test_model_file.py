import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from robustkit.errors import UserError
from robustkit.models import PixelModel, load_model
from robustkit.models.model_file import read_description, save_model


@pytest.fixture
def small(tmp_path, monkeypatch) -> PixelModel:
    """A model that `net.py:make` builds, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "net.py").write_text(code)
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return PixelModel(network, name="small", source="a test", num_classes=10, mean=[0.25], std=[0.5])


def test_a_model_file_is_a_model_by_itself(small, tmp_path):
    save_model(tmp_path / "model.safetensors", small, "net.py:make", "small-tuned", {})
    loaded = load_model(str(tmp_path / "model.safetensors"), dataset="digits")
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    assert torch.equal(small(x), loaded(x))
    assert loaded.name == "small-tuned"
    with pytest.raises(UserError, match="weights of its own"):
        load_model(str(tmp_path / "model.safetensors"), dataset="digits", weights="default")


def test_equal_models_have_equal_bytes(small, tmp_path):
    for name in "abcdef":
        save_model(tmp_path / f"{name}.safetensors", small, "net.py:make", "small", {"recipe": "r", "start": "s"})

    assert len({(tmp_path / f"{name}.safetensors").read_bytes() for name in "abcdef"}) == 1


def test_a_checkpoint_without_a_description_names_the_fix(tmp_path):
    save_file({"weight": torch.zeros(2)}, str(tmp_path / "plain.safetensors"))

    with pytest.raises(UserError, match=r"--model NAME --weights"):
        load_model(str(tmp_path / "plain.safetensors"), dataset="digits")
    assert read_description("resnet18") is None
