import pytest

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.black_box_wins import BrokenImages, broken_images, gradient_attacks
from robustkit.checks.register import checks_of, warnings_of
from tests.checks.facts import facts


def records(attack, *, broke=(), left=(), forwards=5, backwards=100):
    return AttackColumns.of(
        (sample, success, 0, 0, 0, -1, 0.1, 0.1, 0.1, 1, forwards, backwards)
        for success, images in ((1, broke), (0, left)) for sample in images
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by_gradients", "left", "without", "masked"),
    [
        (0, 40, 35, True),
        (3, 92, 35, True),
        (35, 60, 3, False),
        (5, 60, 5, False),
        (0, 40, 1, False),
        (0, 40, 0, False),
        (40, 0, 0, False),
    ],
)
def test_gradients_look_masked_where_others_break_more(by_gradients, left, without, masked):
    assert BrokenImages(by_gradients, left, left, tuple(range(without))).masked is masked


def test_an_ensembles_members_are_counted_on_what_gradients_left():
    attacks = {
        "aa/apgd": records("aa/apgd", broke=[0], left=[1, 2, 3, 4]),
        "aa/square": records("aa/square", broke=[1, 2, 3], left=[4], backwards=0),
    }

    assert broken_images(attacks, {"aa/apgd"}) == BrokenImages(1, 4, 4, (1, 2, 3))


def test_attacks_of_every_image_are_counted_on_what_gradients_left():
    attacks = {
        "square": records("square", broke=[0, 1, 2], left=[3, 4], backwards=0),
        "pgd": records("pgd", broke=[0, 3], left=[1, 2, 4]),
    }

    assert broken_images(attacks, {"pgd"}) == BrokenImages(2, 3, 3, (1, 2))


def test_attacks_that_left_out_what_gradients_left_show_nothing():
    # The check was "ok", beside a checklist that said that none was run.
    rows = {
        ("Linf", "0.1", "aa/apgd"): records("aa/apgd", broke=[0], left=[1, 2, 3]),
        ("Linf", "0.1", "aa/square"): records("aa/square", left=[1, 2, 3], forwards=0, backwards=0),
    }
    check = next(check for check in checks_of(facts(attacked=rows)) if check.name == "black_box_wins")

    assert check.status == "not_applicable"
    assert "attacked the 3 images that gradient attacks did not break" in check.finding


def test_an_image_that_few_steps_left_says_nothing():
    attacks = {
        "fgsm": records("fgsm", left=[0, 1, 2, 3], backwards=1),
        "square": records("square", broke=[0, 1, 2], left=[3], backwards=0),
    }

    assert broken_images(attacks, {"fgsm"}) == BrokenImages(0, 0, 0, ())


def test_an_attack_whose_rows_were_carried_over_still_uses_gradients():
    fresh, carried = records("pgd", broke=[0]), records("pgd", broke=[0], backwards=0)

    assert gradient_attacks({("Linf", "0.1", "pgd"): fresh, ("Linf", "0.2", "pgd"): carried}) == {"pgd"}


def test_the_warning_is_about_the_threat_where_it_shows_most():
    rows = {
        ("Linf", eps, name): records(name, broke=broke, left=left, backwards=backwards)
        for eps, count in (("0.1", 5), ("0.2", 9))
        for name, broke, left, backwards in (
            ("pgd", [0], range(1, 40), 40), ("square", range(1, count + 1), range(count + 1, 40), 0)
        )
    }  # fmt: skip
    (sentence,) = warnings_of([check for check in checks_of(facts(attacked=rows)) if check.name == "black_box_wins"])

    assert "net at Linf 0.2: attacks without gradients broke 9 of the 39" in sentence
    assert "robustkit diagnose" in sentence


@pytest.mark.parametrize(("left", "words"), [(5, "accuracy is too high"), (0, "though no image survived all attacks")])
def test_an_accuracy_of_0_is_not_called_too_high(left, words):
    survivors = range(40 - left, 40)
    rows = {
        ("Linf", "0.1", "pgd"): records("pgd", broke=[0], left=range(1, 40)),
        ("Linf", "0.1", "square"): records("square", broke=range(1, 40 - left), left=survivors, backwards=0),
    }
    check = next(check for check in checks_of(facts(attacked=rows)) if check.name == "black_box_wins")

    assert check.status == "failed"
    assert words in check.finding
