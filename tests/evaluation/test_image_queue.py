"""Images that wait for an attack."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from robustkit.evaluation.image_queue import ImageQueue, image_numbers


@given(some.lists(some.lists(some.integers(0, 1 << 40), max_size=5), max_size=5), some.integers(1, 7))
def test_images_leave_in_the_order_in_which_they_came(parts, most):
    queue, taken = ImageQueue(), []
    for part in parts:
        queue.extend(image_numbers(part))
    waiting = len(queue)
    while some_images := queue.take(most):
        taken += some_images

    assert taken == [image for part in parts for image in part]
    assert waiting == len(taken)
    assert len(queue) == 0


def test_a_removed_image_does_not_wait_any_more():
    queue = ImageQueue()
    queue.extend(np.array([3, 5, 7]))
    queue.remove(5)
    queue.remove(6)

    assert len(queue) == 2
    assert queue.take(9) == (3, 7)
