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
def wants(width): return nn.Linear(width, 10)
def fails(): raise KeyError("no weights at home")
def number(): return 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 64")
    (tmp_path / "mine.py").write_text(NETWORK)
    return tmp_path / "mine.py"


@pytest.fixture(autouse=True)
def _forget_the_files(monkeypatch):
    yield
    for name in ("neighbour", "robustkit_user_mine"):
        sys.modules.pop(name, None)


def test_a_function_of_a_file_makes_the_model(file):
    before = list(sys.path)
    model = load_model(f"{file}:digits_net", dataset="digits")

    assert (model.name, model.num_classes) == ("mine.digits_net", 10)
    assert not model.training
    assert sys.path == before


def test_random_weights_are_the_same_each_time(file):
    prints = {fingerprint(load_model(f"{file}:digits_net", dataset="digits")) for _ in range(2)}

    assert len(prints) == 1


def test_the_classes_are_those_that_the_network_answers(file):
    assert load_model(f"{file}:other", dataset="digits").num_classes == 12
    assert load_model(f"{file}:digits_net").num_classes == 3


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (":gone", r"no function 'gone'; pass .*mine\.py:NAME, .* digits_net, fails, number, other, wants"),
        ("", r"pass .*mine\.py:NAME"),
        (":fails", r"fails\(\) in .*mine\.py failed: KeyError: 'no weights at home'"),
        (":wants", r"failed: TypeError: .*'width'"),
        (":number", r"must return a torch\.nn\.Module, not int"),
    ],
)
def test_a_function_that_makes_no_model_says_why(file, function, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(f"{file}{function}", dataset="digits")


def test_a_file_that_cannot_be_imported_says_why(tmp_path):
    (tmp_path / "mine.py").write_text("import torhc")

    with pytest.raises(UserError, match=r"mine\.py cannot be imported: ModuleNotFoundError: No module named 'torhc'"):
        load_model(f"{tmp_path / 'mine.py'}:net", dataset="digits")
    with pytest.raises(UserError, match="There is no file"):
        load_model(f"{tmp_path / 'gone.py'}:net", dataset="digits")


def test_a_network_for_other_images_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text("from torch import nn\ndef net(): return nn.Conv2d(3, 4, 3)")

    with pytest.raises(UserError, match="does not take the images of digits \\(1x8x8\\)"):
        load_model(f"{tmp_path / 'mine.py'}:net", dataset="digits")


def test_a_network_of_ones_own_is_not_trained(file):
    with pytest.raises(UserError, match="leave out --train"):
        load_model(f"{file}:digits_net", dataset="digits", train=True)


def test_a_network_of_ones_own_takes_a_checkpoint(file, tmp_path):
    state = {"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}
    torch.save(state, tmp_path / "a.pt")
    model = load_model(f"{file}:digits_net", dataset="digits", weights=tmp_path / "a.pt")

    assert model.source == "digits_net() of mine.py, weights of a.pt"
    assert torch.equal(model.network[1].weight, torch.ones(10, 64))
