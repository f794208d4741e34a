import pytest
import torch

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({}, "needs weights; pass --weights FILE, .*--dataset digits"),
        ({"dataset": "cifar10"}, "has no weights for cifar10; pass --weights FILE, or --train"),
        ({"dataset": "cifar10", "train": True}, "cifar10 does not come with robustkit; pass --data-dir DIR"),
        ({"dataset": "digits", "train": True, "weights": "a.pt"}, "exclude each other"),
        ({"dataset": "cifar"}, "did you mean cifar10"),
        ({"train": True}, "needs weights"),
    ],
)
def test_without_weights_the_ways_to_them_are_named(wishes, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model("resnet18", **wishes)


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(UserError, match="did you mean resnet18"):
        load_model("resnet19", dataset="digits")


def test_data_without_a_training_split_cannot_be_trained_on():
    data = from_tensors(torch.zeros(2, 1, 8, 8), torch.arange(2))

    with pytest.raises(UserError, match=r"no split called 'train'.* pass --weights FILE"):
        load_model("resnet18", dataset=data, train=True)
