"""Points of a figure that show a text."""

import re

import pytest
from robustkit.reports.shared.figures import add_hover_texts, axes_in, svg_of

from tests.reports.pages import HOSTILE, Page


@pytest.mark.parametrize("name", ["layer1", "a 'b'", 'a "b"', "'\"", HOSTILE])
def test_a_point_shows_its_text_and_no_text_becomes_markup(name):
    with axes_in((4, 3), (0.1, 0.1, 0.8, 0.8), "p") as axes:
        axes.plot([1, 2], [1, 2], marker="o")
        add_hover_texts(axes, [(1, 1, name), (2, 2, name)])
        svg = svg_of(axes, "p")
    found = Page(svg)

    assert [text for tag, text in found.texts if tag == "title"] == [name, name]
    assert "hover:" not in svg
    assert "script" not in dict(found.tags)
    assert len(set(re.findall(r'class="hover" cx="([^"]+)" cy="([^"]+)"', svg))) == 2
