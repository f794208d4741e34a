"""Which logit belongs to which class of the data."""

import pytest

from robustkit.errors import UserError
from robustkit.models.hub.labels import order_of

# As in ImageNet: two labels have one text, and two others the first name.
CRANES = ["tench, Tinca tinca", "hen", "crane", "maillot", "maillot, tank suit", "crane"]


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (["hen", "Tench"], (1, 0, 2, 3, 4, 5)),
        (["hen", "maillot"], (1, 3, 0, 2, 4, 5)),
        (["maillot,_tank_suit", "tench"], (4, 0, 1, 2, 3, 5)),
        (["hen", "crane", "maillot", "maillot", "crane"], (1, 2, 3, 4, 5, 0)),  # all but the first
    ],
)
def test_names_are_found_among_labels_of_which_others_are_equal(wanted, order):
    """Any two equal labels left the model's order in silence, and ImageNet has two cranes: 0 % for 100 %."""
    assert order_of(CRANES, wanted) == order


@pytest.mark.parametrize(
    "wanted", [["tench", "hen"], [*CRANES], [label.split(",")[0] for label in CRANES], ["tench", "cat"], ["0", "1"]]
)
def test_the_order_of_the_model_stays_where_names_fit_or_are_others(wanted):
    assert order_of(CRANES, wanted) is None


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (["hen", "crane"], "crane"),
        (["crane", "crane", "hen"], "crane"),  # which of the two is first, if all are in another order?
        (["hen", "tench, Tinca tinca", "tench"], "tench, Tinca tinca"),
    ],
)
def test_a_name_that_may_be_several_labels_is_refused(wanted, name):
    with pytest.raises(UserError, match=f"'{name}' may be several of them"):
        order_of(CRANES, wanted)


def test_another_order_with_a_name_that_no_label_has_is_refused():
    """One name of the data was spelt otherwise, and all images were judged in the model's order in silence."""
    with pytest.raises(UserError, match="in another order than the data, and none called 'cat'"):
        order_of(CRANES, ["hen", "cat"])
