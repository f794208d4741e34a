"""Classes by name or number."""

import pytest

from robustkit.adversarial_examples.class_names import ClassNames
from robustkit.errors import UserError

ANIMALS = ClassNames(("goldfish", "Egyptian cat", "crane", "tiger cat", "crane"), 5)


@pytest.mark.parametrize(
    ("text", "number"), [("goldfish", 0), ("Goldfish", 0), ("egyptian_cat", 1), (" tiger  cat ", 3), ("4", 4)]
)
def test_names_and_numbers_are_found(text, number):
    assert ANIMALS.number(text) == number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("goldfisch", "did you mean goldfish"),
        ("cat", "did you mean Egyptian cat or tiger cat"),
        ("crane", "2 and 4 are both"),
        ("5", "numbered from 0"),
        ("-1", "no class"),
        ("9" * 5000, "no class"),
    ],
)
def test_what_is_no_class_is_answered_in_one_line(text, answer):
    with pytest.raises(UserError, match=answer) as refusal:
        ANIMALS.number(text)
    assert "\n" not in str(refusal.value)


def test_folders_are_classes_by_name_then_by_position():
    assert ANIMALS.of_folders(["goldfish", "tiger_cat"]) == [0, 3]
    assert ANIMALS.of_folders(["a", "b", "c", "d", "e"]) == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="sub-folder 'dog'"):
        ANIMALS.of_folders(["dog", "goldfish"])
