"""`--dataset file.py:NAME`: a data set of the user's code."""

from pathlib import Path

import numpy as np
import pytest
import torch

from robustkit.data import given_dataset, load_dataset
from robustkit.errors import UserError

CODE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

X, Y = torch.rand(6, 1, 8, 8), torch.arange(6)
loader = DataLoader(TensorDataset(X, Y), batch_size=2)

def arrays(count=4): return X[:count].numpy(), Y[:count].numpy()
def of_split(split): return TensorDataset(X[: 2 if split == "train" else 5], Y[: 2 if split == "train" else 5])
def number(): return 7
def fails(): raise OSError("no disk")

class Items:
    def __init__(self, count=3): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, number): return X[number], int(Y[number])

class Broken(Items):
    def __len__(self): raise KeyError("gone")

items = Items()
"""


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)


@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("loader", "test", 6), ("arrays", "test", 4), ("arrays(count=2)", "test", 2), ("of_split", "test", 5),
        ("of_split", "train", 2), ("of_split(split='train')", "test", 2), ("Items", "test", 3), ("items", "test", 3),
    ],
)  # fmt: skip
def test_a_name_of_a_file_is_a_data_set(name, split, count):
    data = load_dataset(f"mine.py:{name}", split)

    assert [len(data), data.name, data.split] == [count, f"mine.{name}", split]
    assert data.batch([1])[1].tolist() == [1]


@pytest.mark.parametrize(
    ("name", "split", "words"),
    [
        ("number", "test", r"number\(\) in mine.py: Data in memory are images"),
        ("fails", "test", r"fails\(\) in mine.py failed: OSError: no disk"),
        ("arrays", "train", r"arrays\(\) in mine.py gets no split"),
        ("items", "train", "items in mine.py gets no split"),
        ("Broken", "test", r"Broken\(\) in mine.py cannot be read: KeyError: 'gone'"),
        ("arrays(count=open)", "test", "open is not a literal"),
        ("gone", "test", "has no function or object 'gone'; .* arrays, fails, items, loader, number, of_split"),
    ],
)
def test_code_that_gives_no_data_set_says_why(name, split, words):
    with pytest.raises(UserError, match=words) as error:
        load_dataset(f"mine.py:{name}", split)

    assert "\n" not in str(error.value)


def test_any_object_with_a_length_and_items_is_a_data_set():
    class Items:
        def __len__(self):
            return 3

        def __getitem__(self, number):
            return np.full((1, 4, 4), number / 4, np.float32), number

    assert torch.equal(given_dataset(Items()).batch([2])[0], torch.full((1, 1, 4, 4), 0.5))


@pytest.mark.parametrize("data", [{"x": 1}, "digits", [1, 2, 3], np.zeros((2, 1, 4, 4)), Path, dict])
def test_what_only_has_a_length_is_no_data_set(data):
    with pytest.raises(UserError, match="Data in memory are images"):
        given_dataset(data)
