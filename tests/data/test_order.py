import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustkit.data import pick
from robustkit.errors import UserError


@given(st.integers(1, 1000), st.integers(1, 1200))
def test_n_images_are_the_first_of_an_order_that_has_every_image_once(count, n):
    order = pick(count)

    assert sorted(order) == list(range(count))
    assert pick(count, n) == order[:n]


def test_a_data_set_sorted_by_class_is_sampled_evenly():
    # 1000 of 10 x 1000: about 100 a class, standard deviation 9.
    counts = [sum(number // 1000 == label for number in pick(10_000, 1000)) for label in range(10)]

    assert min(counts) > 60
    assert max(counts) < 140


def test_the_order_never_changes():
    # Every stored result is about these images: another order here is another version of all of them.
    assert pick(10) == [9, 4, 6, 8, 1, 5, 7, 3, 2, 0]


def test_no_samples_are_refused():
    with pytest.raises(UserError, match="at least 1, not 0"):
        pick(10, 0)
