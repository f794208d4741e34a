from typing import NamedTuple

import pytest
import torch

from robustkit.classifier.logits import logits_of
from robustkit.errors import UserError

Z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


class Answer(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


@pytest.mark.parametrize(
    "output",
    [Z, (Z, "aux"), [Z], {"logits": Z, "loss": 1}, {"out": Z}, {"output": Z}, ((Z,),), Answer(torch.zeros(()), Z)],
)
def test_logits_are_found_in_whatever_a_model_returns(output):
    assert torch.equal(logits_of(output), Z)


@pytest.mark.skipif(not hasattr(Z, "rename"), reason="newer versions of torch have no named tensors")
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_the_names_of_dimensions_are_dropped():
    logits = logits_of(Z.rename("N", "K"))

    assert torch.equal(logits.scatter(1, torch.tensor([[0], [1]]), -1.0), torch.tensor([[-1.0, 2.0], [3.0, -1.0]]))


@pytest.mark.parametrize("output", [torch.tensor([-2.0, 3.0]), torch.tensor([[-2.0], [3.0]])])
def test_one_logit_is_a_binary_classifier(output):
    assert logits_of(output).tolist() == [[0, -2], [0, 3]]


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (torch.zeros(2, 3, 4), r"returned \[2, 3, 4\]"),
        (torch.zeros(()), "logits"),
        (torch.tensor([0, 1]), "one whole number for each image.*returns='labels'"),
        (torch.tensor([True, False]), "one whole number for each image"),
        ({"scores": Z}, "keys are scores"),
        ((), "tuple"),
        (None, "NoneType"),
    ],
)
def test_other_outputs_are_refused_with_their_type(output, sentence):
    with pytest.raises(UserError, match=sentence):
        logits_of(output)
