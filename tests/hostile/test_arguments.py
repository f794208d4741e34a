"""The library refuses arguments of the wrong type with one sentence, at each public entry."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from robustkit.defenses import ablate, certify, predict
from torch import nn

import robustkit as rk
from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.host.arguments import fits
from robustkit.tracing import album
from tests.small import data, linear

X, Y = data(8)
GIVEN: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "Classifier": (rk.Classifier, {"model": linear()}),
    "Smoothing": (rk.Smoothing, {"sigma": 0.25}),
    "load_dataset": (rk.load_dataset, {"name": "digits"}),
    "load_model": (rk.load_model, {"name": "resnet18"}),
    "load_run": (rk.load_run, {}),
    "diagnose": (rk.diagnose, {"model": linear(), "x": X, "y": Y, "eps": 0.1}),
    "trace": (rk.trace, {"model": linear(), "x": X, "y": Y, "eps": 0.1}),
    "finetune": (rk.finetune, {"model": linear(), "train": (X, Y), "val": (X, Y), "eps": 0.1}),
    "certify": (certify, {"model": linear(), "x": X, "sigma": 0.25}),
    "predict": (predict, {"model": linear(), "x": X, "sigma": 0.25}),
    "album": (album, {"model": linear()}),
    "from_tensors": (from_tensors, {"x": X, "y": Y}),
}
WRONG: dict[str, dict[str, list[object]]] = {
    "Classifier": {
        "model": [None, "resnet18", 3, lambda x: x, nn.Linear, [linear()]],
        "bounds": [None, 1, "01", (0,), (0, 1, 2), ("0", "1")],
        "mean": [0.5, "0.5", ["a"], [None]],
        "std": [0.5, {0.5}],
        "name": [3, None, b"x"],
        "eot": ["20", 1.5, [20]],
        "draws": [None, "64", 6.4],
        "bpda": ["quantise", ["quantise"], {1: None}.keys()],
        "smoothing": [0.25, "0.25"],
    },
    "Smoothing": {"sigma": [None, "0.25", [0.25], X, 1j], "n": ["100", 100.5, None], "alpha": ["0.001", None]},
    "load_dataset": {"name": [None, 3, b"digits", ["digits"], X], "split": [None, 3],
                     "image_size": ["32", 32.5, (32, 32)]},
    "load_model": {"name": [None, 3, linear(), ["resnet18"]], "num_classes": ["10", 10.5], "mean": [0.5, "0.5"],
                   "dataset": [3, (X, Y), ["digits"]], "weights": [3, {}]},
    "load_run": {"folder": [None, 3, ["run"], b"run"]},
    "diagnose": {"model": [None, "resnet18", 3], "x": [None, X.numpy(), X.tolist(), "x"], "y": [None, Y.tolist(), 3],
                 "eps": [None, [0.1], X, b"0.1"], "norm": [None, 2, ["L2"]], "loss": [None, 3],
                 "seed": ["0", 0.5, None],
                 "batch_size": ["64", 6.4, None], "bounds": [None, 3]},
    "trace": {"model": [None, "resnet18"], "x": [None, X.numpy()], "y": [None, Y.tolist()], "eps": [[0.1], X],
              "attack": [None, 3, rk.Classifier], "x_adv": [3, X.numpy()], "seed": ["0"], "batch_size": [None]},
    "finetune": {"model": [None, "resnet18"], "train": [None, "digits", X, (X,), [X.tolist(), Y.tolist()]],
                 "eps": [None, [0.1]], "norm": [None, 2], "recipe": [None, 3, {}], "out": [3, [], b"x"]},
    "certify": {"model": [None, "resnet18"], "x": [None, X.numpy()], "sigma": [None, "0.25"], "n": ["100", None, 1.5],
                "ids": [3, "all"], "batch_size": ["x"]},
    "predict": {"model": [None], "x": [None, [1]], "sigma": ["0.25"], "alpha": ["x"]},
    "album": {"traced": [None, 3, "run"]},
    "from_tensors": {"x": [None, X.numpy(), 3], "y": [None, [0]], "name": [3], "class_names": [3, "abc", [1]]},
}  # fmt: skip
CASES = [(entry, key, value) for entry, keys in WRONG.items() for key, values in keys.items() for value in values]


@pytest.mark.parametrize("key", ["samples", "audit", "batch_size", "eot", "severities", "smooth", "eps"])
def test_a_truth_value_was_taken_for_the_number_one(key):
    """audit=True audited one survivor, and eps=True attacked at a radius of 1."""
    with pytest.raises(UserError, match=f"{key} must be .* not bool"):
        rk.evaluate(linear(), dataset=(X, Y), **{"attacks": "fgsm", "eps": 0.1, key: True})


def test_the_radius_true_was_a_radius_of_one():
    with pytest.raises(UserError, match="not a bool"):
        rk.attack(linear(), X, Y, "fgsm", eps=True)


@pytest.mark.parametrize(
    ("entry", "key", "value"), CASES, ids=[f"{entry}-{key}-{number}" for number, (entry, key, _) in enumerate(CASES)]
)
def test_a_wrong_type_is_refused_in_one_sentence_that_names_the_argument(entry, key, value):
    function, given = GIVEN[entry]

    with pytest.raises(UserError) as refused:
        function(**{**given, key: value})

    assert key in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [(np.float32(0.1), float), (np.int64(3), int), (3, float), (True, bool), ([0, 1], tuple[float, float]),
     (torch.ones(3), list[float] | tuple[float, ...] | torch.Tensor), (None, int | None)],
)  # fmt: skip
def test_numbers_of_numpy_and_lists_for_pairs_are_accepted(value, hint):
    assert fits(value, hint)


NO_PATH = "nul\0"
SPLITS = list(zip(*(values.split(8) for values in data(24)), strict=True))  # train, val, test
WITH_PATH: dict[str, Callable[[], object]] = {
    "evaluate": lambda: rk.evaluate(linear(), dataset=(X, Y), attacks="fgsm", eps=0.1, out=NO_PATH),
    "finetune": lambda: rk.finetune(linear(), *SPLITS[:2], eps=0.1, out=NO_PATH),
    "ablate": lambda: ablate(linear, *SPLITS, eps=0.1, grid={"nesterov": [True, False]}, out=NO_PATH),
    "load_run": lambda: rk.load_run(NO_PATH),
    "load_dataset": lambda: rk.load_dataset(NO_PATH),
}


@pytest.mark.parametrize("entry", WITH_PATH)
def test_a_path_with_a_zero_byte_is_refused_in_one_sentence(entry):
    with pytest.raises(UserError) as refused:
        WITH_PATH[entry]()

    assert "\n" not in str(refused.value)
