import warnings
from collections import OrderedDict
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from robustkit.data import TensorData, from_tensors
from robustkit.errors import UserError
from robustkit.models import PixelModel, load_model

NAME = "shufflenet_v2_x0_5"


def small_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torchvision.models.get_model(NAME, weights=None, num_classes=7).eval()


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return small_net().state_dict()


def saved(content: object, folder: Path) -> Path:
    torch.save(content, folder / "a.pt")
    return folder / "a.pt"


def load(path: Path, num_classes: int = 7, **more: object) -> PixelModel:
    return load_model(NAME, weights=path, num_classes=num_classes, **more)


def assert_loaded(path: Path, state: dict[str, Tensor]) -> None:
    loaded = load(path).network.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def images(channels: int, side: int, classes: int = 4) -> TensorData:
    return from_tensors(torch.zeros(classes, channels, side, side), torch.arange(classes))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "state_dict": state},
        lambda state: {"model_state_dict": state, "loss": 0.1},
        lambda state: {"net": {f"module.{key}": value for key, value in state.items()}, "acc": 91.2},
        lambda state: {"model": {f"_orig_mod.module.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"model.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"model._orig_mod.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"model.module.{key}": value for key, value in state.items()}},
        lambda state: {"n_averaged": torch.tensor(9)} | {f"module.{key}": value for key, value in state.items()},
        lambda state: OrderedDict((f"network.{key}", value) for key, value in state.items()),
        lambda state: {"state_dict_ema": state},
        lambda state: {"model_ema": {"n_averaged": torch.tensor(9)} | {f"module.{k}": v for k, v in state.items()}},
    ],
)
def test_a_state_dict_is_read_from_its_usual_wrappers(tmp_path, state, wrapped):
    assert_loaded(saved(wrapped(state), tmp_path), state)


@pytest.mark.parametrize(("trained", "averaged"), [("state_dict", "state_dict_ema"), ("model", "model_ema")])
def test_averaged_weights_beside_others_are_not_left_out_in_silence(tmp_path, state, trained, averaged):
    """timm loads the averaged ones of such a file, and here the others were evaluated."""
    both = saved({trained: state, averaged: {key: value * 2 for key, value in state.items()}}, tmp_path)
    with pytest.raises(UserError, match=f"two sets of weights, {trained} and the averaged {averaged}"):
        load(both)


def test_safetensors_old_torch_files_and_our_own_state_dicts_are_read(tmp_path, state):
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth", _use_new_zipfile_serialization=False)
    torch.save(load(tmp_path / "b.pth").state_dict(), tmp_path / "c.pt")

    for file in ("a.safetensors", "b.pth", "c.pt"):
        assert_loaded(tmp_path / file, state)


def test_a_torchscript_file_as_weights_is_not_called_packed(tmp_path):
    """The advice was to unpack it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that TorchScript will go
        torch.jit.save(torch.jit.script(nn.ReLU()), tmp_path / "a.pt")

    with pytest.raises(UserError, match=r"a\.pt is a TorchScript file, .*pass it as --model, without --weights"):
        load(tmp_path / "a.pt")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code ran')",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda state: small_net(), r"objects \(torchvision\.models\.shuffle\S*\), .*torch\.save"),
        (lambda state: {"state_dict": Evil()}, "exec"),
        (lambda state: {"epoch": 3, "lr": 0.1}, r"no state dict \(keys epoch, lr\)"),
        (lambda state: [1, 2], r"no state dict \(list\)"),
        (lambda state: {**state, "fc.bias": torch.full((7,), torch.nan)}, r"fc\.bias .* NaN"),
        # The last one counted, in silence.
        (lambda state: {**state, "module.fc.bias": torch.ones(7)}, r"twice, as fc\.bias and as module\.fc\.bias"),
        (lambda state: {**state, "fc.weight": torch.zeros(9, 1024), "fc.bias": torch.zeros(9)}, "--num-classes 9"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_says_why_and_runs_no_code(tmp_path, state, content, sentence):
    with pytest.raises(UserError, match=sentence):
        load(saved(content(state), tmp_path))


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize(
    ("size", "sentence"), [(None, "no checkpoint"), (0, "is empty"), (5, "not a whole"), (5000, "not a whole")]
)
def test_a_missing_or_cut_off_file_says_so(tmp_path, state, suffix, size, sentence):
    path = tmp_path / f"a.{suffix}"
    if size is not None:
        (save_file if suffix == "safetensors" else torch.save)(state, path)
        path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(UserError, match=sentence):
        load(path)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_file_that_may_not_be_read_is_not_called_broken(tmp_path, state, suffix, monkeypatch):
    path = tmp_path / f"a.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(state, path)
    monkeypatch.setattr("pathlib.Path.open", Mock(side_effect=PermissionError(13, "Permission denied")))

    with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read \(Permission denied\); check its permissions"):
        load(path)


def test_another_architecture_lists_the_first_differences(tmp_path, state):
    odd = {key: value for key, value in state.items() if not key.startswith("stage2.0")}
    odd |= {f"extra{number}": torch.zeros(1) for number in range(5)} | {"conv5.0.weight": torch.zeros(2, 2)}

    with pytest.raises(UserError) as caught:
        load(saved(odd, tmp_path))
    assert "missing stage2.0.branch1.0.weight, " in str(caught.value)
    assert "unexpected extra0, extra1, extra2 and 2 more" in str(caught.value)
    assert "conv5.0.weight is [2, 2], not [1024, 192, 1, 1]" in str(caught.value)


@pytest.mark.parametrize(("kernel", "channels"), [(3, 1), pytest.param(7, 3, marks=pytest.mark.slow)])
def test_a_resnet_gets_the_stem_of_its_checkpoint(tmp_path, kernel, channels):
    with torch.random.fork_rng():
        network = torchvision.models.resnet18(weights=None, num_classes=4)
        network.conv1 = nn.Conv2d(channels, 64, kernel, bias=False)
    model = load_model("resnet18", dataset=images(1, 16), weights=saved(network.state_dict(), tmp_path))

    assert model.network.conv1.weight.shape == (64, channels, kernel, kernel)
    assert isinstance(model.network.maxpool, nn.Identity) == (kernel == 3)
    assert model.gray == (channels == 3)


def test_a_checkpoint_may_have_more_classes_than_the_data_but_not_fewer(tmp_path, state):
    path = saved(state, tmp_path)

    assert load(path, dataset=images(3, 32)).num_classes == 7
    with pytest.raises(UserError, match="7 classes, tensors has 9"):
        load(path, dataset=images(3, 32, classes=9))


def test_statistics_for_other_channels_are_refused(tmp_path, state):
    with pytest.raises(UserError, match=r"2 numbers, but .* 3 channels"):
        load(saved(state, tmp_path), dataset=images(3, 32), mean=(0.5, 0.5), std=(1, 1))
