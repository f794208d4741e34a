"""Hashes of weights: those of checkpoints and runs that are already on disk must not change."""

import pytest
import torch

from robustkit.models.hashing import hash_tensors


def weights() -> dict[str, torch.Tensor]:
    return {"b": torch.tensor([1.0, -2.5]), "a": torch.arange(6).reshape(2, 3), "half": torch.ones(2).bfloat16()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "5d0801370b8379cf"), ({"prefix": "Net"}, "df83c53ed279e62b"), ({"separator": ""}, "fbc99b97f9a4a82c")],
    ids=["ablations", "checkpoints", "runs"],
)  # fmt: skip
def test_the_hash_is_the_recorded_one(options, expected):
    assert hash_tensors(weights(), **options).hexdigest()[:16] == expected


@pytest.mark.parametrize(
    "changes", [{"b": torch.tensor([1.0, -2.4])}, {"b": torch.tensor([[1.0, -2.5]])}, {"c": torch.zeros(1)},
                {"a": torch.arange(6).reshape(2, 3).int()}],
    ids=["value", "shape", "name", "type"],
)  # fmt: skip
def test_every_property_of_a_tensor_counts(changes):
    assert hash_tensors({**weights(), **changes}).digest() != hash_tensors(weights()).digest()


def test_order_and_memory_layout_do_not_count():
    tensors = {"weight": torch.arange(24.0).reshape(2, 3, 2, 2), "bias": torch.zeros(2)}
    other = {"bias": tensors["bias"], "weight": tensors["weight"].contiguous(memory_format=torch.channels_last)}

    assert hash_tensors(tensors).digest() == hash_tensors(other).digest()
