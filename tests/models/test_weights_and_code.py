"""Weights are data: they never choose which code is run."""

import pytest
import torch
from robustkit.defenses import finetune
from torch import nn

from robustkit.errors import UserError
from robustkit.models import PixelModel, load_model
from robustkit.models.model_file import architecture_of, save_model
from robustkit.models.preprocessing import Normalisation
from tests.hostile.files import names_code


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("address", ["evil.py:make", "./evil.py:make", "{folder}/evil.py:make", "evil.py", "evil.py:"])
def test_metadata_that_names_a_file_runs_no_code(place, address):
    path = names_code(place, address.format(folder=place))

    with pytest.raises(UserError) as caught:
        load_model(str(path), dataset="digits")
    assert not (place / "CODE_RAN").exists()
    assert f"pass --model {address.format(folder=place)} --weights {path}" in str(caught.value)


def test_code_and_weights_named_on_the_command_line_are_the_model_that_was_tuned(place):
    (place / "net.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    tuned = PixelModel(
        network, name="net.make-tuned", source="a test", num_classes=10, normalisation=Normalisation([0.25], [0.5])
    )
    save_model(place / "m.safetensors", tuned, "net.py:make", tuned.name, {})
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    loaded = load_model("net.py:make", weights="m.safetensors", dataset="digits")
    other = load_model("net.py:make", weights="m.safetensors", dataset="digits", mean=[0.0], std=[1.0])

    assert torch.equal(loaded(x), tuned(x))
    assert torch.equal(other(x), network(x))


def test_a_tuned_model_that_is_tuned_again_keeps_its_architecture(place):
    model = load_model("resnet18", num_classes=3, weights=_checkpoint(place))
    save_model(place / "m.safetensors", model, "resnet18", "resnet18-tuned", {})

    assert architecture_of("m.safetensors") == "resnet18"
    assert architecture_of("net.py:make") == "net.py:make"
    assert load_model("m.safetensors").name == "resnet18-tuned"


def test_a_training_checkpoint_that_names_code_runs_none(place):
    from safetensors.torch import save_file

    (place / "evil.py").write_text("open('CODE_RAN', 'w').close()\nclass Evil: pass\n")
    notes = '{"format": 1, "identity": {"attack": "evil.py:Evil"}, "progress": {"attack": "evil.py:Evil"}}'
    save_file({"weights/a": torch.zeros(1)}, "training.safetensors", {"notes": notes})
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    train, val = (x[:4], torch.arange(4)), (x[4:], torch.arange(4))
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    with pytest.raises(UserError, match="holds another training"):
        finetune(network, train, val, eps=0.1, out=place)
    assert not (place / "CODE_RAN").exists()


def _checkpoint(place):
    import torchvision

    with torch.random.fork_rng():
        state = torchvision.models.resnet18(num_classes=3).state_dict()
    torch.save(state, place / "a.pt")
    return place / "a.pt"
