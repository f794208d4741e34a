import re
from collections.abc import Callable

import pytest
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.figures import accuracy_against_eps, legend
from robustkit.reports.shared.figures import Figure

from robustkit.evidence.run import Run


@pytest.fixture(scope="module")
def drawn(run: Run) -> list[Figure]:
    return accuracy_against_eps(boards([run])[0], "s0")


def test_ids_are_unique_and_every_reference_has_its_target(drawn: list[Figure]) -> None:
    page = "".join(figure.svg for figure in drawn)
    ids = re.findall(r'\bid="([^"]+)"', page)

    assert len(ids) == len(set(ids))
    assert {*re.findall(r"url\(#([^)]+)\)", page), *re.findall(r'href="#([^"]+)"', page)} <= {*ids}


def test_colours_and_fonts_are_left_to_the_page(drawn: list[Figure]) -> None:
    for figure in drawn:
        assert not re.search(r"#[0-9a-f]{6}\b", figure.svg)
        assert "font-family" not in figure.svg
        assert "<style" not in figure.svg


def test_text_stays_text(drawn: list[Figure]) -> None:
    assert ">1/4</text>" in drawn[1].svg


def test_a_user_s_style_does_not_change_the_bytes(run: Run, drawn: list[Figure]) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"lines.linewidth": 9, "svg.fonttype": "path"}):
        again = accuracy_against_eps(boards([run])[0], "s0")

    assert again == drawn


def test_ten_models_have_ten_looks(make_run: Callable[..., Run]) -> None:
    run = make_run(n=20, models=tuple(f"m{i}" for i in range(10)), threats=(("Linf", 0.1, "0.1"),))

    looks = {(line.mark, line.colour) for line in legend(boards([run])[0])}

    assert len(looks) == 10
