from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rows import Rows, along, padded


@dataclass(frozen=True)
class Inner(Rows):
    number: Tensor  # [B]


@dataclass(frozen=True)
class Outer(Rows):
    inner: Inner
    picture: Tensor  # [B, 2]


def outer(*numbers: int) -> Outer:
    values = torch.tensor(numbers)
    return Outer(Inner(values), values.unsqueeze(1) * torch.tensor([10, 100]))


def numbers(rows: Outer) -> list[int]:
    assert torch.equal(rows.picture[:, 0], rows.inner.number * 10)
    return rows.inner.number.tolist()


def test_the_length_is_the_number_of_rows_also_through_a_nested_struct():
    assert len(outer(1, 2, 3)) == 3


def test_take_gives_the_rows_in_the_order_asked_for_and_repeats_them():
    assert numbers(outer(5, 6, 7).take(torch.tensor([2, 0, 0]))) == [7, 5, 5]


def test_overwritten_replaces_rows_one_for_one():
    assert numbers(outer(1, 2, 3).overwritten(torch.tensor([2, 0]), outer(8, 9))) == [9, 2, 8]


def test_overwriting_needs_no_second_memory():
    before = outer(1, 2, 3)
    after = before.overwritten(torch.tensor([0]), outer(9))

    assert after.picture.data_ptr() == before.picture.data_ptr()


@dataclass(frozen=True)
class Two(Rows):
    one: Tensor  # [B]
    other: Tensor  # [B]


@pytest.mark.parametrize("alias", [lambda values: values, lambda values: values[:], lambda values: values.detach()])
def test_two_fields_that_are_one_tensor_get_their_own_rows(alias):
    values = torch.tensor([1, 2, 3])
    after = Two(values, alias(values)).overwritten(torch.tensor([1]), Two(torch.tensor([7]), torch.tensor([8])))

    assert (after.one.tolist(), after.other.tolist()) == ([1, 7, 3], [1, 8, 3])


def test_an_expanded_tensor_gets_rows_of_its_own():
    rows = Two(torch.zeros(1).expand(3), torch.zeros(3))
    after = rows.overwritten(torch.tensor([1]), Two(torch.ones(1), torch.ones(1)))

    assert after.one.tolist() == [0, 1, 0]


def test_where_chooses_row_by_row():
    assert numbers(outer(1, 2, 3).where(torch.tensor([True, False, True]), outer(7, 8, 9))) == [1, 8, 3]


@pytest.mark.parametrize("parts", [[(1, 2), (3,)], [(1, 2, 3)], [(1,), (2,), (3,)]])
def test_cat_keeps_all_rows_in_order(parts):
    assert numbers(Rows.cat([outer(*part) for part in parts])) == [1, 2, 3]


def test_along_broadcasts_over_the_rest_of_a_row():
    assert along(torch.tensor([2, 3]), torch.ones(2, 4, 5)).shape == (2, 1, 1)


def test_padded_repeats_the_first_row():
    assert padded(torch.tensor([4, 2]), 5).tolist() == [4, 2, 4, 4, 4]


def test_one_number_for_all_rows_ended_with_an_attribute_error():
    with pytest.raises(UserError, match="one value for each row, not float"):
        along(0.05, torch.ones(2, 3))
