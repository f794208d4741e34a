import pytest
import torch
import torchvision
from safetensors.torch import save_file

from robustkit.errors import UserError
from robustkit.models import PixelModel, load_model
from robustkit.models.model_file import read_description, save_model
from robustkit.models.preprocessing import Normalisation

NAME = "shufflenet_v2_x0_5"


@pytest.fixture
def small(tmp_path, monkeypatch) -> PixelModel:
    """A model in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        network = torchvision.models.get_model(NAME, weights=None, num_classes=10).eval()
    return PixelModel(
        network,
        name="small",
        source="a test",
        num_classes=10,
        size=32,
        gray=True,
        normalisation=Normalisation([0.25], [0.5]),
    )


def test_a_file_without_normalisation_has_none_on_imagenet_either(tmp_path):
    # It was normalised as the published weights are.
    with torch.random.fork_rng():
        network = torchvision.models.get_model(NAME, weights=None).eval()
    save_model(tmp_path / "m.safetensors", PixelModel(network, name="m", source="", num_classes=1000), NAME, "m", {})

    assert not load_model(str(tmp_path / "m.safetensors"), dataset="imagenet").normalises
    assert not load_model(NAME, dataset="imagenet", weights=tmp_path / "m.safetensors").normalises


def test_a_model_file_is_a_model_by_itself(small, tmp_path):
    save_model(tmp_path / "model.safetensors", small, NAME, "small-tuned", {})
    loaded = load_model(str(tmp_path / "model.safetensors"), dataset="digits").eval()
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    assert torch.equal(small.eval()(x), loaded(x))
    assert loaded.name == "small-tuned"
    with pytest.raises(UserError, match="weights of its own"):
        load_model(str(tmp_path / "model.safetensors"), dataset="digits", weights="default")


def test_equal_models_have_equal_bytes(small, tmp_path):
    for name in "abcdef":
        save_model(tmp_path / f"{name}.safetensors", small, NAME, "small", {"recipe": "r", "start": "s"})

    assert len({(tmp_path / f"{name}.safetensors").read_bytes() for name in "abcdef"}) == 1


def test_a_checkpoint_without_a_description_names_the_fix(tmp_path):
    save_file({"weight": torch.zeros(2)}, str(tmp_path / "plain.safetensors"))

    with pytest.raises(UserError, match=r"--model NAME --weights"):
        load_model(str(tmp_path / "plain.safetensors"), dataset="digits")
    assert read_description("resnet18") is None
