import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from robustkit.data import load_dataset
from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import load_model
from tests.small import data, save

NETWORK = """
import torch
from torch import nn
from neighbour import WIDTH

def digits_net(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, num_classes))

def one(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
def other(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 12))
def colour(): return nn.Conv2d(3, 4, 3)
class Crash(nn.Module):
    def forward(self, x): raise KeyError("weights")

def wants(width): return nn.Linear(width, 10)
def fails(): raise KeyError("no weights at home")
def number(): return 7
def chosen(width, kind="relu", num_classes=3):
    layers = [nn.Flatten(), nn.Linear(64, width), nn.Linear(width, num_classes)]
    return nn.Sequential(*layers)

class Net(nn.Sequential):
    def __init__(self, width=4):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

net = Net()

def compiled(): return torch.compile(Net())
def compiled_layer(): return nn.Sequential(nn.Flatten(), torch.compile(nn.Linear(64, 10)))
def parallel(): return nn.DataParallel(Net())
def averaged(): return torch.optim.swa_utils.AveragedModel(Net())
class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.module, self.head = Net(), nn.Linear(10, 10)
    def forward(self, x): return self.head(self.module(x))

def empty():
    with torch.device("meta"): return Net()

def lazy(): return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))

class Noting(Net):
    def get_extra_state(self): return {"seen": 0}
    def set_extra_state(self, state): self.noted = state
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "neighbour.py").write_text("WIDTH = 64")
    (tmp_path / "mine.py").write_text(NETWORK)
    (tmp_path / "typo.py").write_text("import torhc")
    yield
    for name in ("neighbour", "robustkit_user_mine"):
        sys.modules.pop(name, None)


def test_a_function_of_a_file_builds_the_model():
    before = list(sys.path)
    model = load_model("mine.py:digits_net", dataset="digits")

    assert (model.name, model.num_classes) == ("mine.digits_net", 10)
    assert not model.training
    assert sys.path == before
    # Random weights are the same each time.
    assert fingerprint(load_model("mine.py:digits_net", dataset="digits")) == fingerprint(model)


def test_the_number_of_classes_is_that_of_the_logits():
    assert load_model("mine.py:other", dataset="digits").num_classes == 12
    assert load_model("mine.py:digits_net").num_classes == 3


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("mine.py:gone", {}, r"no function or object .gone.; pass mine\.py:NAME, .* colour, .* net, .* wants"),
        ("mine.py", {}, r"pass mine\.py:NAME"),
        ("mine.py:fails", {}, r"fails\(\) in mine\.py failed: KeyError: 'no weights at home'"),
        ("mine.py:wants", {}, "failed: TypeError: .*'width'"),
        ("mine.py:number", {}, r"must return a torch\.nn\.Module, not int"),
        ("mine.py:chosen", {}, r"failed: TypeError: .*'width'"),
        ("mine.py:chosen(depth=2)", {}, r"chosen\(\) in mine.py failed: TypeError: .*'depth'"),
        ("mine.py:chosen(width=open('CODE_RAN', 'w'))", {}, r"open\('CODE_RAN', 'w'\) is not a literal"),
        ("mine.py:chosen(*[1])", {}, "has arguments with a star"),
        ("mine.py:chosen(8", {}, r"chosen\(8 is not a call in Python; write for example make\(width=8\)"),
        ("mine.py:chosen(8)(9)", {}, "is not one call"),
        ("mine.py:chosen(8, 8 8)", {}, "is not a call in Python"),
        ("mine.py:chosen(" + "[" * 5000 + ")", {}, "more than 4,096 letters"),
        ("mine.py:chosen(" + "[" * 999 + ")", {}, "is not a call in Python"),
        ("mine.py:net()", {}, "net in mine.py is an object and no function; leave out its brackets"),
        ("mine.py:gone(8)", {}, "has no function or object 'gone'"),
        ("mine.py", {}, r"mine\.py is a file, and a function or object of it is meant; pass mine\.py:NAME, with "),
        ("mine.py:one", {}, "mine.one returns one logit, which counts as 2 classes, digits has 10"),
        ("mine.py:colour", {}, r"does not take the images of digits \(1x8x8\)"),
        ("mine.py:Crash", {}, r"fails on .* digits \(1x8x8\): KeyError: 'weights' \(mine\.py:\d+\); correct it"),
        ("mine.py:digits_net", {"train": True}, "leave out --train"),
        ("typo.py:net", {}, r"typo\.py cannot be imported: ModuleNotFoundError: No module named 'torhc'"),
        ("gone.py:net", {}, "There is no file"),
    ],
)  # fmt: skip
def test_a_function_that_builds_no_model_for_the_data_says_why(name, options, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(name, dataset="digits", **options)


def test_one_logit_counts_as_two_classes(tmp_path):
    x, y = data(30)
    save(tmp_path / "two.npz", x[y < 2], y[y < 2])

    assert load_model("mine.py:one", dataset=load_dataset(str(tmp_path / "two.npz"))).num_classes == 2


def test_the_first_image_of_a_class_that_the_model_lacks_is_named(tmp_path):
    x, y = data(30)
    y[7] = 12
    save(tmp_path / "more.npz", x, y)

    with pytest.raises(UserError, match=r"mine.other has 12 classes, more has 13 \(image 7 has the label 12\)"):
        load_model("mine.py:other", dataset=load_dataset(str(tmp_path / "more.npz")))


def test_labels_that_count_from_one_are_named_as_what_they_are(tmp_path):
    # It advised --num-classes 11, and with that --num-classes 10.
    x, y = data(30)
    save(tmp_path / "one.npz", x, y + 1)

    with pytest.raises(UserError, match=r"one has 11 .*probably count from 1: subtract 1\.$"):
        load_model("mine.py:net", dataset=load_dataset(str(tmp_path / "one.npz")))


def test_a_network_of_the_user_takes_a_checkpoint(tmp_path):
    state = {"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}
    torch.save(state, tmp_path / "a.pt")
    model = load_model("mine.py:digits_net", dataset="digits", weights=tmp_path / "a.pt")

    assert model.source == "digits_net() of mine.py, weights of a.pt"
    assert torch.equal(model.network[1].weight, torch.ones(10, 64))


@pytest.mark.parametrize(
    ("name", "advice"),
    [("net", "name a model with 7"), ("digits_net(9)", "name a model with 7"), ("digits_net", "--num-classes 7")],
)
def test_num_classes_is_only_advised_where_a_function_gets_it(tmp_path, name, advice):
    """The advice stayed the same after it was followed."""
    torch.save({"1.weight": torch.ones(7, 64), "1.bias": torch.zeros(7)}, tmp_path / "a.pt")

    with pytest.raises(UserError, match=advice):
        load_model(f"mine.py:{name}", dataset="digits", weights=tmp_path / "a.pt")


def test_a_lazy_network_takes_a_checkpoint(tmp_path):
    """It was a traceback, because a lazy layer has no shape yet."""
    torch.save({"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}, tmp_path / "a.pt")
    model = load_model("mine.py:lazy", dataset="digits", weights=tmp_path / "a.pt")

    assert torch.equal(model.network[1].weight, torch.ones(10, 64))


@pytest.mark.parametrize("name", ["compiled", "compiled_layer", "parallel", "averaged", "Holder"])
def test_a_wrapped_network_takes_the_weights_that_it_has_saved(tmp_path, name):
    """All were missing: the wrapper's prefix was taken off the names in the file only."""
    network = load_model(f"mine.py:{name}", dataset="digits").network
    state = {key: torch.ones_like(value) for key, value in network.state_dict().items()}
    torch.save(state, tmp_path / "a.pt")
    loaded = load_model(f"mine.py:{name}", dataset="digits", weights=tmp_path / "a.pt").network.state_dict()

    assert all(torch.equal(loaded[key], state[key]) for key in state)


@pytest.mark.parametrize("weights", [None, "a.pt"])
def test_a_network_without_values_says_how_to_build_it(tmp_path, weights):
    """It was "Cannot copy out of meta tensor", and with weights these went nowhere."""
    torch.save({"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}, tmp_path / "a.pt")

    with pytest.raises(UserError, match=r"The weight 1\.weight has no values .*outside of torch\.device\('meta'\)"):
        load_model("mine.py:empty", dataset="digits", weights=weights)


def test_what_a_module_keeps_beside_its_weights_is_loaded_with_them(tmp_path):
    """It was "missing _extra_state; save it again whole"."""
    state = {"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10), "_extra_state": {"seen": 5}}
    torch.save(state, tmp_path / "a.pt")
    model = load_model("mine.py:Noting", dataset="digits", weights=tmp_path / "a.pt")

    assert model.network.noted == {"seen": 5}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("mine.py:chosen(width=8)", 8),
        ("mine.py:chosen(5, kind='a.py:b()')", 5),
        ("./mine.py:chosen(kind=[-1.5, (None, {'a': True})], width=7)", 7),
    ],
)
def test_a_function_gets_literal_arguments(name, width):
    model = load_model(name, dataset="digits")

    assert [model.network[1].out_features, model.num_classes] == [width, 10]
    assert model.name == f"mine.{name.partition(':')[2]}"


def test_the_number_of_classes_that_a_call_gives_is_kept():
    assert load_model("mine.py:chosen(4, num_classes=12)", dataset="digits").num_classes == 12
    assert load_model("mine.py:chosen(4, 'relu', 12)", dataset="digits").num_classes == 12


def test_a_class_is_called_and_an_instance_is_used_as_it_is():
    built, given = load_model("mine.py:Net", dataset="digits"), load_model("mine.py:net", dataset="digits")

    assert [type(model.network).__name__ for model in (built, given)] == ["Net", "Net"]
    assert [model.source for model in (built, given)] == ["Net() of mine.py", "net of mine.py"]


@pytest.mark.parametrize(
    ("network", "gray", "advice"),
    [("one", False, "read the images with --gray"), ("three", True, "leave out --gray")],
)
def test_pictures_with_other_channels_than_the_network_takes_name_the_option(network, gray, advice):
    Path("own.py").write_text(
        "from torch import nn\n"
        "one, three = (\n"
        "    nn.Sequential(nn.Conv2d(channels, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()) for channels in (1, 3)\n"
        ")\n"
    )
    for name in ("cat", "dog"):
        Path("pictures", name).mkdir(parents=True)
        Image.new("L", (8, 8), 51).save(Path("pictures", name, "1.png"))

    with pytest.raises(UserError, match=f"{advice}\\.$"):
        load_model(f"own.py:{network}", dataset=load_dataset("pictures", gray=gray))
    assert load_model(f"own.py:{network}", dataset=load_dataset("pictures", gray=not gray)).num_classes == 2
