"""Marks on images: what sets of images would say, in a byte each."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from robustkit.evaluation.image_marks import ImageMarks, neighbours_together

IMAGES = (7, 3, 2_000_000, 11)
MARKED = some.lists(some.tuples(some.sampled_from("ab"), some.sampled_from(IMAGES), some.sampled_from([1, 2, 4])))


@given(MARKED)
def test_marks_say_what_sets_of_images_say(given_marks):
    marks = ImageMarks[str](IMAGES)
    sets = {(name, mark): set() for name in "ab" for mark in (1, 2, 4)}
    for name, image, mark in given_marks:
        marks.mark(name, marks.places([image]), mark)
        sets[name, mark].add(image)

    for (name, mark), images in sets.items():
        assert set(marks.images[marks.marked(name, mark)]) == images
        assert marks.marked(name, mark, marks.places(IMAGES)).tolist() == [image in images for image in IMAGES]
        both = sets["a", mark] | sets["b", mark]
        assert set(marks.images[marks.marked_under_any("abc", mark)]) == both


def test_an_image_under_an_attack_takes_a_byte():
    marks, many = ImageMarks[str](range(100_000)), np.arange(0, 100_000, 2)
    tracemalloc.start()
    try:
        for name in "abcdefgh":
            marks.mark(name, many, 1)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held < 1.1 * 8 * 100_000


def test_images_that_nobody_knows_are_told_apart():
    assert ImageMarks[str](IMAGES).known(np.array([3, 4, 2_000_001])).tolist() == [True, False, False]


def test_images_of_a_large_run_come_with_their_neighbours_and_their_groups_at_random():
    images = np.random.default_rng(0).permutation(1 << 16)
    ordered = neighbours_together(images)
    groups = ordered.reshape(-1, 64) // 64

    assert sorted(ordered) == sorted(images)
    assert (groups == groups[:, :1]).all()
    assert abs(np.corrcoef(groups[:, 0], np.arange(1024))[0, 1]) < 0.1
    assert (ordered[0] // 64) == (images[0] // 64)


def test_images_of_a_smaller_run_keep_their_order():
    images = np.random.default_rng(0).permutation(1000)

    assert (neighbours_together(images) == images).all()
