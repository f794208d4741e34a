import pytest
import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.models import load_model
from robustkit.models.model_file import read_description, save_model
from robustkit.models.pixels import PixelModel


def saved(path, **more: str) -> PixelModel:
    made = _small()
    save_model(path, made, "net.py:make", "small-tuned", more)
    return made


def _small() -> PixelModel:
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return PixelModel(network, name="small", source="a test", num_classes=10, mean=[0.25], std=[0.5])


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "net.py").write_text(code)
    return tmp_path


def test_a_described_file_is_a_model_by_itself(net):
    made = saved(net / "model.safetensors")
    loaded = load_model(str(net / "model.safetensors"), dataset="digits")
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    assert torch.equal(made(x), loaded(x))
    assert loaded.name == "small-tuned"


def test_equal_models_have_equal_bytes(net):
    made = _small()
    for name in "abcdef":
        save_model(net / f"{name}.safetensors", made, "net.py:make", "small", {"recipe": "r", "start": "s"})
    raw = {(net / f"{name}.safetensors").read_bytes() for name in "abcdef"}

    assert len(raw) == 1


def test_a_checkpoint_without_a_description_says_what_is_missing(net):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, str(net / "plain.safetensors"))

    with pytest.raises(UserError, match=r"--model NAME --weights"):
        load_model(str(net / "plain.safetensors"), dataset="digits")


def test_a_described_file_has_weights_of_its_own(net):
    saved(net / "model.safetensors")
    with pytest.raises(UserError, match="weights of its own"):
        load_model(str(net / "model.safetensors"), dataset="digits", weights="default")


def test_a_name_is_no_file():
    assert read_description("resnet18") is None
