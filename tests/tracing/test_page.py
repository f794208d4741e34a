import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from robustkit.reports.trace.figures import stages
from robustkit.reports.trace.page import TraceContext, page, write_trace
from robustkit.reports.trace.terminal import print_trace

from robustkit.errors import UserError
from robustkit.tracing import Album, Traced, album, trace
from tests.problems import problem
from tests.reports.evaluation.test_html import HOSTILE
from tests.reports.evaluation.test_html import Page as Tags


class Page(Tags):
    """The same, where a long name may break."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "wbr":
            super().handle_starttag(tag, attrs)


@pytest.fixture(scope="module")
def found() -> tuple[Traced, Album]:
    chosen = problem("cnn", 1, 8, 8, count=10)
    traced = trace(chosen.model, chosen.x, chosen.y, attack="pgd:steps=5", eps="0.03")
    return traced, album(chosen.model, traced, images=3, channels=2)


@pytest.fixture(scope="module")
def text(found: tuple[Traced, Album]) -> str:
    return page(*found, TraceContext("digits test", tuple("abcd"), "robustkit trace"))


@pytest.fixture(scope="module")
def hostile() -> str:
    """A page whose every name comes from somebody who means ill."""
    chosen = problem("cnn", 1, 8, 8, count=10)
    traced = trace(chosen.model, chosen.x, chosen.y, attack="fgsm", eps=0.03)
    named = [
        replace(call, key=call.key._replace(layer=call.key.layer + HOSTILE), kind=HOSTILE) for call in traced.calls
    ]
    pictures = album(chosen.model, traced, images=1, channels=1)
    entries = [
        replace(shot, layers=tuple(replace(layer, name=HOSTILE) for layer in shot.layers)) for shot in pictures.entries
    ]
    assert pictures.focus is not None
    traced = replace(
        traced, model=HOSTILE, calls=tuple(named), unseen={HOSTILE: "it never ran"},
        origin=replace(traced.origin, attack=HOSTILE),
    )  # fmt: skip
    pictures = replace(pictures, entries=tuple(entries), focus=replace(pictures.focus, layer=HOSTILE))
    return page(traced, pictures, TraceContext(HOSTILE, (HOSTILE,) * 4, HOSTILE))


def test_every_tag_is_closed_in_order(text, hostile):
    assert Page(text).open == []
    assert Page(hostile).open == []


def test_nothing_is_asked_from_elsewhere(text, hostile):
    for one in (text, hostile):
        found = Page(one)
        links = [
            attrs[name] for _, attrs in found.tags for name in ("src", "href", "srcset", "action") if name in attrs
        ]

        assert links
        assert all(link and link.startswith(("data:image/png;base64,", "#")) for link in links)
        assert not re.search(r"url\((?!#)", one)
        assert "@import" not in one
        assert "http" not in "".join(text for tag, text in found.texts if tag == "style")


def test_a_name_cannot_become_a_tag_or_a_script(hostile):
    found = Page(hostile)
    scripts = [attrs for tag, attrs in found.tags if tag == "script"]

    assert [attrs.get("type") for attrs in scripts] == ["application/json", None]
    assert not any("onerror" in attrs for _, attrs in found.tags)
    assert not any(attrs.get("src") == "x" for _, attrs in found.tags)


def test_every_link_leads_to_a_place_of_the_page(text):
    found = Page(text)
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]

    assert len(ids) == len(set(ids))
    assert all(attrs["href"][1:] in ids for tag, attrs in found.tags if tag == "a")


def test_pictures_have_words_for_who_cannot_see_them(text):
    found = Page(text)

    assert all(attrs.get("alt") for tag, attrs in found.tags if tag == "img")
    assert sum(tag == "img" for tag, _ in found.tags) >= 3 * (5 + 2 + 4 * 2 * 3)


def test_the_numbers_of_the_page_are_those_of_the_trace(found, text):
    traced, _ = found

    assert Page(text).data() == json.loads(traced.to_json())
    for call in traced.calls:
        assert f"{traced.spread(call, 'relative', 'broken').median:#.3g}" in text


def test_rows_stand_in_the_order_of_execution(found, text):
    places = [text.index(f"<small>{call.order} · {call.kind}</small>") for call in found[0].calls]

    assert places == sorted(places)


def test_a_call_that_returns_its_input_has_no_row(found, text, undrawn):
    traced = replace(found[0], calls=(*found[0].calls[:2], replace(found[0].calls[2], moot=True), *found[0].calls[3:]))

    assert found[0].shown_calls == list(found[0].calls)
    assert f"<small>2 · {traced.calls[2].kind}</small>" not in page(traced, None, TraceContext())
    assert len(traced.to_frame()) == len(found[0].to_frame())


def test_the_same_trace_gives_the_same_page(found, text):
    assert page(*found, TraceContext("digits test", tuple("abcd"), "robustkit trace")) == text


def test_three_files_are_written_and_agree(found, tmp_path, undrawn):
    import pandas as pd

    write_trace(*found, tmp_path)
    frame = pd.read_csv(tmp_path / "trace.csv")
    document = json.loads((tmp_path / "trace.json").read_text())

    assert {file.name for file in tmp_path.iterdir()} == {"trace.html", "trace.csv", "trace.json"}
    assert frame.relative.tolist() == pytest.approx([row["relative"] for row in document["calls"]])
    assert frame.group.tolist() == ["all", "broken", "robust"] * len(found[0].calls)


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(found, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write"):
        write_trace(*found, tmp_path / "file")


def test_a_page_needs_no_pictures(found):
    words = Page(page(found[0], None, TraceContext())).words()

    assert "Every call" in words
    assert "Grad-CAM at" not in words


def test_a_trace_of_nothing_has_a_page(found):
    chosen = problem("mlp", 6, count=3)
    traced = trace(chosen.model, chosen.x, chosen.y, x_adv=chosen.x.clone())
    said = page(traced, album(chosen.model, traced), TraceContext())

    assert "nowhere" in Page(said).words()
    assert "nan" not in Page(said).words().lower().split()


@pytest.mark.parametrize("width", [60, 70, 100, 140])
def test_the_table_fits_the_terminal_and_keeps_the_place_where_it_grows(found, width):
    console = Console(width=width, force_terminal=False, record=True, file=io.StringIO())
    print_trace(found[0], console)
    said = console.export_text()

    assert all(len(line) <= width for line in said.splitlines())
    assert "<- most" in said
    head = next(line for line in said.splitlines() if " layer " in line)
    assert all(f" {name}: " in said for name in ("cosine", "CKA", "flips", "margin") if f" {name} " in head)
    lines = [line for line in said.splitlines() if re.match(r" *\d+ ", line)]
    assert [int(line.split()[0]) for line in lines if line.split()[1] in _names(found[0])] == list(range(8))


def _names(traced: Traced) -> set[str]:
    return {call.name for call in traced.calls}


def test_stages_are_named_by_as_much_as_tells_them_apart():
    assert stages(["(input)", "conv1", "layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1", "fc"]) == [
        (0, "(input)"), (1, "conv1"), (2, "layer1"), (4, "layer2"), (5, "fc"),
    ]  # fmt: skip
    assert stages(["(input)", "features.0.a", "features.0.b", "features.1.a", "head"]) == [
        (0, "(input)"), (1, "features.0"), (3, "features.1"), (4, "head"),
    ]  # fmt: skip
