import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.figures import charts
from robustkit.reports.evaluation.html import page
from robustkit.reports.shared.line_chart import NARROW, WIDE, drawings, round_ticks, shared_prefix, shortened_name

from robustkit.evidence.run import Run

LINF = tuple(("Linf", eps, str(eps)) for eps in (0.05, 0.1, 0.2))


def test_a_norm_with_several_radii_has_a_chart_and_one_radius_has_no_line(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, threats=(*LINF, ("L2", 0.5, "1/2")))

    (shown,) = charts(boards([run])[0])

    assert shown[0].title.startswith("Linf")
    assert [tick.text for tick in shown[0].ticks] == ["0", "0.05", "0.1", "0.2"]


def test_a_line_goes_through_the_accuracies_of_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run(n=40, models=("m",), threats=LINF)
    rows = run.results[run.results["role"].isin(["clean", "worst-case"])]

    ((chart, _),) = charts(boards([run])[0])

    (line,) = chart.lines
    assert [point.y for point in line.points] == [100 * value for value in rows["accuracy"]]
    assert [point.x for point in line.points] == [*rows["eps"]]


def test_labels_of_many_lines_do_not_overlap_and_stay_in_the_chart(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, models=tuple(f"m{i}" for i in range(10)), threats=LINF, hardness=1e-6)

    ((chart, _),) = charts(boards([run])[0])

    for drawing in drawings(chart):
        places = sorted(line.label_y for line in drawing.lines if line.label_y is not None)
        assert len(places) == 10
        assert all(later - earlier > 16.9 for earlier, later in pairwise(places))
        assert places[-1] <= drawing.frame.bottom


def test_names_that_have_no_room_at_their_lines_stand_whole_in_a_legend(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, models=("short", "longer-name"), threats=LINF)

    ((_, (wide, narrow)),) = charts(boards([run])[0])

    assert {line.name for line in wide.lines} == {"short", "longer-name"}
    assert wide.legend == []
    assert {line.name for line in narrow.lines} == {""}
    assert {line.name for line in narrow.legend} == {"short", "longer-name"}


def test_two_lines_of_one_colour_have_no_legend(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, models=tuple(f"model-number-{i}" for i in range(8)), threats=LINF)

    ((_, (_, narrow)),) = charts(boards([run])[0])

    assert narrow.legend == []
    assert all("\N{HORIZONTAL ELLIPSIS}" in line.name for line in narrow.lines)


def test_colours_are_left_to_the_page(run: Run) -> None:
    charts_in_page = re.findall(r"<svg.*?</svg>", page([run]), flags=re.DOTALL)

    assert len(charts_in_page) > 4
    assert not any(re.search(r"#[0-9a-f]{6}\b", svg) for svg in charts_in_page)


def test_names_are_shortened_in_the_middle_and_lose_what_they_share() -> None:
    assert shortened_name("a" * 30, WIDE.letters) == "a" * 17 + "…" + "a" * 8
    assert len(shortened_name("x" * 99, NARROW.letters)) == NARROW.letters
    assert shared_prefix(["models.a", "models.b"]) == "models."
    assert shared_prefix(["resnet18", "resnet50"]) == ""
    assert shared_prefix(["models.a"]) == ""


@pytest.mark.parametrize(
    ("largest", "texts"),
    [(0.339, "0 0.1 0.2 0.3"), (1.0, "0 0.2 0.4 0.6 0.8 1"), (0.05, "0 0.01 0.02 0.03 0.04 0.05"), (12.0, "0 5 10")],
)
def test_ticks_are_round_numbers(largest: float, texts: str) -> None:
    assert " ".join(tick.text for tick in round_ticks(largest)) == texts
