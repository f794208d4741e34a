"""When gradients are believed."""

import pytest

from robustkit.primitives.trust import believable, bent


@pytest.mark.parametrize(("predicted", "obtained", "expected"), [
    (1.0, 0.9, (True, False)), (1.0, 1.9, (True, False)), (1.0, 2.1, (False, False)), (0.0, 0.5, (False, False)),
    (1.0, 0.2, (True, True)), (1.0, -3.0, (True, True)),
])  # fmt: skip
def test_what_happened_says_whether_a_gradient_is_believed(predicted, obtained, expected):
    assert (believable(predicted, obtained), bent(predicted, obtained)) == expected
