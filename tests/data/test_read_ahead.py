"""Parts come in order, one is read ahead, and errors keep their place."""

import threading

import pytest

from robustkit.data.read_ahead import read_ahead
from robustkit.errors import UserError

PARTS = [[0, 1], [2, 3], [4]]


def test_each_part_comes_with_what_was_read():
    assert list(read_ahead(sum, PARTS)) == [([0, 1], 1), ([2, 3], 5), ([4], 4)]


def test_nothing_is_read_of_nothing():
    assert list(read_ahead(sum, [])) == []


def test_the_next_part_is_read_before_this_one_is_asked_for_and_none_after_it():
    started, third = threading.Event(), threading.Event()

    def read(part):
        (started if part == PARTS[1] else third if part == PARTS[2] else threading.Event()).set()

    parts = read_ahead(read, PARTS)
    next(parts)

    assert started.wait(10)
    assert not third.is_set()


def test_an_error_is_raised_in_the_turn_of_its_part():
    def read(part):
        if part == PARTS[1]:
            raise UserError("image 2 cannot be decoded")
        return part

    parts = read_ahead(read, PARTS)

    assert next(parts)[1] == PARTS[0]
    with pytest.raises(UserError, match="image 2"):
        next(parts)
