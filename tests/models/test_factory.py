import sys
from pathlib import Path

import pytest
import torch

from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import load_model

NETWORK = """
from torch import nn
from neighbour import WIDTH

def digits_net(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, num_classes))

def other(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 12))
def colour(): return nn.Conv2d(3, 4, 3)
def wants(width): return nn.Linear(width, 10)
def fails(): raise KeyError("no weights at home")
def number(): return 7
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
        ("mine.py:gone", {}, r"no function .gone.; pass mine\.py:NAME, .* colour, digits_net, fails, .* wants"),
        ("mine.py", {}, r"pass mine\.py:NAME"),
        ("mine.py:fails", {}, r"fails\(\) in mine\.py failed: KeyError: 'no weights at home'"),
        ("mine.py:wants", {}, "failed: TypeError: .*'width'"),
        ("mine.py:number", {}, r"must return a torch\.nn\.Module, not int"),
        ("mine.py:colour", {}, r"does not take the images of digits \(1x8x8\)"),
        ("mine.py:digits_net", {"train": True}, "leave out --train"),
        ("typo.py:net", {}, r"typo\.py cannot be imported: ModuleNotFoundError: No module named 'torhc'"),
        ("gone.py:net", {}, "There is no file"),
    ],
)  # fmt: skip
def test_a_function_that_builds_no_model_for_the_data_says_why(name, options, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(name, dataset="digits", **options)


def test_a_network_of_the_user_takes_a_checkpoint(tmp_path):
    state = {"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}
    torch.save(state, tmp_path / "a.pt")
    model = load_model("mine.py:digits_net", dataset="digits", weights=tmp_path / "a.pt")

    assert model.source == "digits_net() of mine.py, weights of a.pt"
    assert torch.equal(model.network[1].weight, torch.ones(10, 64))
