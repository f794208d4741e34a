from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import load_model

State = dict[str, Tensor]


def small_net(classes: int = 7) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torchvision.models.shufflenet_v2_x0_5(weights=None, num_classes=classes).eval()


@pytest.fixture(scope="module")
def state() -> State:
    return small_net().state_dict()


def load(path: Path, num_classes: int = 7, **more: object) -> nn.Module:
    return load_model("shufflenet_v2_x0_5", weights=path, num_classes=num_classes, **more)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "state_dict": state},
        lambda state: {"model_state_dict": state, "loss": 0.1},
        lambda state: {"net": {f"module.{key}": value for key, value in state.items()}, "acc": 91.2},
        lambda state: {"model": {f"_orig_mod.module.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"model.{key}": value for key, value in state.items()}},
        lambda state: OrderedDict((f"network.{key}", value) for key, value in state.items()),
    ],
)
def test_a_state_dict_is_found_in_its_usual_wrappers(tmp_path, state, wrapped: Callable[[State], object]):
    torch.save(wrapped(state), tmp_path / "a.pt")

    found = load(tmp_path / "a.pt").network.state_dict()
    assert all(torch.equal(found[key], state[key]) for key in state)


def test_safetensors_and_old_torch_files_are_read(tmp_path, state):
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth", _use_new_zipfile_serialization=False)

    assert fingerprint(load(tmp_path / "a.safetensors").network) == fingerprint(load(tmp_path / "b.pth").network)


def test_the_models_own_state_dict_comes_back(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")
    model = load(tmp_path / "a.pt")
    torch.save(model.state_dict(), tmp_path / "b.pt")

    assert fingerprint(load(tmp_path / "b.pt").network) == fingerprint(model.network)


def test_a_pickled_model_is_refused_by_the_name_of_its_class(tmp_path):
    torch.save(small_net(), tmp_path / "a.pt")

    with pytest.raises(UserError, match=r"objects \(torchvision\.models\.shuffle\S*\), .*torch\.save"):
        load(tmp_path / "a.pt")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code ran')",)


def test_no_code_in_a_file_is_run(tmp_path):
    torch.save({"state_dict": Evil()}, tmp_path / "a.pt")

    with pytest.raises(UserError, match="exec"):
        load(tmp_path / "a.pt")


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize(("kept", "sentence"), [(0, "is empty"), (5, "not a whole"), (5000, "not a whole")])
def test_a_cut_off_file_says_so(tmp_path, state, suffix, kept, sentence):
    path = tmp_path / f"a.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(state, path)
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(UserError, match=sentence):
        load(path)


def test_files_that_hold_something_else_say_so(tmp_path):
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "a.pt")
    torch.save([1, 2], tmp_path / "b.pt")

    with pytest.raises(UserError, match=r"no state dict \(keys epoch, lr\)"):
        load(tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"no state dict \(list\)"):
        load(tmp_path / "b.pt")
    with pytest.raises(UserError, match="no checkpoint"):
        load(tmp_path / "gone.pt")


def test_another_architecture_lists_the_first_differences(tmp_path, state):
    odd = {key: value for key, value in state.items() if not key.startswith("stage2.0")}
    odd |= {f"extra{number}": torch.zeros(1) for number in range(5)} | {"conv5.0.weight": torch.zeros(2, 2)}
    torch.save(odd, tmp_path / "a.pt")

    with pytest.raises(UserError) as caught:
        load(tmp_path / "a.pt")
    assert "missing stage2.0.branch1.0.weight, " in str(caught.value)
    assert "unexpected extra0, extra1, extra2 and 2 more" in str(caught.value)
    assert "conv5.0.weight is [2, 2], not [1024, 192, 1, 1]" in str(caught.value)


def test_another_number_of_classes_names_the_option(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")

    with pytest.raises(UserError, match="--num-classes 7"):
        load(tmp_path / "a.pt", num_classes=10)


def test_weights_that_are_not_finite_are_refused(tmp_path, state):
    torch.save({**state, "fc.bias": torch.full((7,), torch.nan)}, tmp_path / "a.pt")

    with pytest.raises(UserError, match=r"fc\.bias .* NaN"):
        load(tmp_path / "a.pt")


def images(channels: int, side: int, classes: int = 4) -> object:
    return from_tensors(torch.zeros(classes, channels, side, side), torch.arange(classes))


def narrow_resnet(kernel: int, channels: int) -> State:
    with torch.random.fork_rng():
        network = torchvision.models.resnet18(weights=None, num_classes=4)
        network.conv1 = nn.Conv2d(channels, 64, kernel, bias=False)
    return network.state_dict()


@pytest.mark.parametrize(("kernel", "channels"), [(3, 1), (7, 3)])
def test_a_resnet_gets_the_stem_of_its_checkpoint(tmp_path, kernel, channels):
    torch.save(narrow_resnet(kernel, channels), tmp_path / "a.pt")
    model = load_model("resnet18", dataset=images(1, 16), weights=tmp_path / "a.pt")

    assert model.network.conv1.weight.shape == (64, channels, kernel, kernel)
    assert isinstance(model.network.maxpool, nn.Identity) == (kernel == 3)
    assert model.gray == (channels == 3)


def test_fewer_classes_than_the_data_are_refused(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")

    with pytest.raises(UserError, match="7 classes, tensors has 9"):
        load(tmp_path / "a.pt", dataset=images(3, 32, classes=9))


def test_more_classes_than_the_data_are_fine(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")

    assert load(tmp_path / "a.pt", dataset=images(3, 32)).num_classes == 7


def test_statistics_for_other_channels_are_refused(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")

    with pytest.raises(UserError, match=r"2 numbers, but .* 3 channels"):
        load(tmp_path / "a.pt", dataset=images(3, 32), mean=(0.5, 0.5), std=(1, 1))
