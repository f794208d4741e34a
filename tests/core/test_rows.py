from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from robustkit.rows import Rows, along, padded


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


def test_put_replaces_rows_one_for_one():
    assert numbers(outer(1, 2, 3).put(torch.tensor([2, 0]), outer(8, 9))) == [9, 2, 8]


def test_put_leaves_its_owner_alone():
    before = outer(1, 2, 3)
    before.put(torch.tensor([0]), outer(9))

    assert numbers(before) == [1, 2, 3]


def test_where_chooses_row_by_row():
    assert numbers(outer(1, 2, 3).where(torch.tensor([True, False, True]), outer(7, 8, 9))) == [1, 8, 3]


@pytest.mark.parametrize("parts", [[(1, 2), (3,)], [(1, 2, 3)], [(1,), (2,), (3,)]])
def test_cat_keeps_all_rows_in_order(parts):
    assert numbers(Rows.cat([outer(*part) for part in parts])) == [1, 2, 3]


def test_along_broadcasts_over_the_rest_of_a_row():
    assert along(torch.tensor([2, 3]), torch.ones(2, 4, 5)).shape == (2, 1, 1)


def test_padded_repeats_the_first_row():
    assert padded(torch.tensor([4, 2]), 5).tolist() == [4, 2, 4, 4, 4]
