import pytest
import torch

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "needs weights; pass --weights FILE, .*--dataset digits"),
        ({"dataset": "cifar10"}, "has no weights for cifar10; pass --weights FILE, or --train"),
        ({"dataset": "cifar10", "train": True}, "cifar10 does not come with robustkit; pass --data-dir DIR"),
        ({"dataset": "digits", "train": True, "weights": "a.pt"}, "exclude each other"),
        ({"dataset": "cifar"}, "did you mean cifar10"),
        ({"train": True}, "needs weights"),
        ({"name": "resnet19", "dataset": "digits"}, "did you mean resnet18"),
        ({"dataset": from_tensors(torch.zeros(2, 1, 8, 8), torch.arange(2)), "train": True},
         r"no split called 'train'.* pass --weights FILE"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_fix(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        load_model(**{"name": "resnet18", **arguments})
