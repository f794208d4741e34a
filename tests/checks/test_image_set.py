"""Sets of images agree with Python's sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robustkit.checks.image_set import ImageSet

NUMBERS = st.lists(st.integers(0, 300))


@given(NUMBERS, NUMBERS)
def test_operators_give_what_those_of_python_sets_give(one, other):
    # Columns of a run have the smallest type that holds their numbers.
    left, right = ImageSet(np.array(one, np.int16)), ImageSet(np.array(other, np.int64))

    for operator in ("__and__", "__or__", "__sub__"):
        expected = getattr(set(one), operator)(set(other))
        assert list(getattr(left, operator)(right)) == sorted(expected)
        assert getattr(left, operator)(set(other)) == expected
    assert set(one) - right == set(one) - set(other)
    assert ImageSet.union([left, right, left]) == set(one) | set(other)


@given(NUMBERS, st.integers(-1, 301))
def test_an_image_is_in_a_set_that_was_given_it(numbers, image):
    assert (image in ImageSet(numbers)) == (image in numbers)
    assert bool(ImageSet(numbers)) == bool(numbers)


@given(NUMBERS)
def test_equal_sets_are_one_key_whatever_the_type_of_their_arrays(numbers):
    narrow, wide = (ImageSet(np.array(numbers, kind)) for kind in (np.int16, np.int64))

    assert {narrow: 1}[wide] == 1
    assert narrow != ImageSet([*numbers, 301])
