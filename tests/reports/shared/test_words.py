import pytest
from robustkit.reports.shared.words import (
    in_plain_words,
    interval,
    p_value,
    per_image,
    percent,
    printable,
    signed_points,
)

from robustkit.primitives.threat import THREATS
from robustkit.statistics.intervals import proportion


@pytest.mark.parametrize(
    ("k", "n", "text"),
    [(440, 504, "87.3 %"), (0, 504, "0.0 %"), (504, 504, "100.0 %"), (9999, 10000, "99.99 %"), (1, 10**6, "0.0001 %")],
)
def test_only_none_and_all_print_as_none_and_all(k: int, n: int, text: str) -> None:
    assert percent(k, n) == text


def test_an_interval_at_the_edge_is_one_sided() -> None:
    none, every = proportion(0, 504), proportion(504, 504)

    assert interval(none.low, none.high, 0, 504) == "≤ 0.73 %"
    assert interval(every.low, every.high, 504, 504) == "≥ 99.27 %"


@pytest.mark.parametrize(
    ("k", "n", "text"),
    [(1, 50000, "0.00 to 0.01 %"), (49999, 50000, "99.99 to 100.00 %"), (252, 504, "45.7 to 54.3 %")],
)
def test_an_interval_did_not_contain_its_share(k: int, n: int, text: str) -> None:
    """0.002 % (0.0 to 0.0 %) was printed of one image of 50,000."""
    share = proportion(k, n)

    assert interval(share.low, share.high, k, n) == text.replace(" to ", "\N{EN DASH}")


def test_no_images_give_no_number() -> None:
    nothing = proportion(0, 0)

    assert percent(0, 0) == interval(nothing.low, nothing.high, 0, 0) == per_image(0, 0)


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert "\x1b" not in printable("model\x1b[2J")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "0.0"), (-1e-6, "0.0"), (0.1, "+10.0"), (-0.1, "\N{MINUS SIGN}10.0")],
)
def test_no_difference_has_no_sign(value: float, text: str) -> None:
    assert signed_points(value) == text


@pytest.mark.parametrize("norm", THREATS)
def test_every_threat_has_plain_words(norm: str) -> None:
    assert in_plain_words(norm, "3").startswith("when ")


def test_a_significant_difference_had_a_p_value_of_the_level_beside_it() -> None:
    """0.0498 was written as 0.050, below a sentence that calls what is below 0.05 significant."""
    assert [p_value(value) for value in (0.0004, 0.0123, 0.0498, 0.0502, 0.05)] == [
        "< 0.001", "0.012", "0.0498", "0.050", "0.050",
    ]  # fmt: skip
