"""Sorting, filters and saved files, on a table whose answers are known."""

import csv
import html
import io
from pathlib import Path

import pytest
from robustkit.reports.evaluation.plain_tables import _in_latex, in_markdown
from robustkit.reports.shared.rendering import policy, script, styles
from robustkit.reports.shared.words import DASH, MINUS

from robustkit.host.text import csv_cell
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

NASTY = [
    "=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "-1+2", "-1.5", "a,b", 'say "no"', "50 % & $x$_y^z~\\ {#}",
    "a|b*c*`d`", "<b>bold</b> [x](y)", "=", "1e-3", f"1{DASH}2 ≤ 3",
]  # fmt: skip


def page_of(body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}"><style>{styles("shared/style.css")}</style>'
        f"</head><body><main>{body}</main><script>{script()}</script></body></html>"
    )


def table(header: list[str], rows: list[list[str]], numbers: bool = True) -> str:
    kind = ' class="num"' if numbers else ""
    head = "".join(f'<th scope="col"{kind}>{html.escape(text)}</th>' for text in header)
    lines = "".join("<tr>" + "".join(f"<td{kind}>{text}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><caption>Some values</caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def column(page, number: int = 1) -> list[str]:
    return page.locator(f"tbody tr:visible td:nth-child({number})").all_inner_texts()


ORDERED = {
    "shares": ["0.5 %", "≤ 0.73 %", "9.1 %", "87.3 %", "100.0 %", DASH],
    "differences": [f"{MINUS}14.5", f"{MINUS}2", "+0.5", "3.25", DASH],
    "thousands": ["7", "1,234", "20,000"],
    "powers": ["1.2e-05", "3e-2", "0.5", "1.1e+1"],
    "fractions": ["2/504", "1/8", "195/504", "8/8"],
    "intervals": [f"84.1{DASH}89.9 %", f"90.0{DASH}95.1 %", "≥ 99.27 %"],
    "counts": ["9 of 20", "10 of 20", "100 of 200"],
}
CLICKED = """[...document.querySelectorAll("table")].map((table) => [1, 2, 3].map(() => {
    table.querySelector("th button").click();
    return [...table.querySelectorAll("tbody td")].map((cell) => cell.innerText);
}))"""


def test_numbers_are_sorted_by_size_and_unknown_ones_come_last(opened):
    shuffled = {kind: [*ordered[1::2], *ordered[::2]] for kind, ordered in ORDERED.items()}
    page = opened(page_of("".join(table([kind], [[text] for text in texts]) for kind, texts in shuffled.items()))).page
    shown = dict(zip(ORDERED, page.evaluate(CLICKED), strict=True))

    for kind, ordered in ORDERED.items():
        known, unknown = [text for text in ordered if text != DASH], [text for text in ordered if text == DASH]
        assert shown[kind] == [known + unknown, known[::-1] + unknown, shuffled[kind]]


def test_names_with_numbers_are_sorted_as_people_do(opened):
    names = ["layer10.conv", "layer2.conv", "Layer1.bn", "10.weight", "2.weight"]
    page = opened(page_of(table(["name"], [[name] for name in names], numbers=False))).page
    page.get_by_role("button", name="name", exact=True).click()

    assert column(page) == ["2.weight", "10.weight", "Layer1.bn", "layer2.conv", "layer10.conv"]


def test_the_keyboard_sorts_and_says_the_direction(opened):
    page = opened(page_of(table(["value"], [["3"], ["1"], ["2"]]))).page
    states = []
    page.keyboard.press("Tab")
    for _ in range(3):
        page.keyboard.press("Enter")
        states.append((page.locator("th").get_attribute("aria-sort"), column(page)))

    assert states == [
        ("ascending", ["1", "2", "3"]), ("descending", ["3", "2", "1"]), ("none", ["3", "1", "2"]),
    ]  # fmt: skip


def test_titles_stay_above_their_rows_and_members_below_their_leader(opened):
    body = """<table><thead><tr><th>attack</th><th class="num">broke</th></tr></thead>
    <tbody><tr><th colspan="2">Linf</th></tr><tr><td>pgd</td><td>9</td></tr><tr><td>standard</td><td>5</td></tr>
    <tr class="member"><td>first</td><td>7</td></tr><tr class="member"><td>then</td><td>1</td></tr></tbody>
    <tbody><tr><th colspan="2">L2</th></tr><tr><td>b</td><td>2</td></tr><tr><td>a</td><td>1</td></tr></tbody></table>"""
    page = opened(page_of(body)).page
    page.get_by_role("button", name="broke", exact=True).click()

    rows = page.locator("tbody tr > :first-child").all_inner_texts()
    assert rows == ["Linf", "standard", "first", "then", "pgd", "L2", "a", "b"]


def test_a_filter_hides_the_rows_without_its_words(opened):
    rows = [[f"layer{number}.conv", "ok" if number % 2 else "step"] for number in range(14)]
    page = opened(page_of(table(["layer", "verdict"], rows, numbers=False))).page
    page.get_by_role("searchbox").fill("STEP layer1")

    assert column(page) == ["layer10.conv", "layer12.conv"]
    assert page.locator("output").inner_text() == "2 of 14"


def test_a_short_table_has_no_filter(opened):
    page = opened(page_of(table(["value"], [["1"], ["2"]]))).page

    assert page.get_by_role("searchbox").count() == 0


def test_saved_tables_are_escaped_like_those_of_the_package(opened):
    shown = opened(page_of(table(["text", "n"], [[html.escape(text), "1"] for text in NASTY])))
    texts = [shown.saved(f"{kind}: save Some values").decode() for kind in ("CSV", "LaTeX", "Markdown")]

    assert list(csv.reader(io.StringIO(texts[0]))) == [["text", "n"], *([csv_cell(text), "1"] for text in NASTY)]
    for text, lines, escape in ((texts[1], r"    {} & 1 \\", _in_latex), (texts[2], "| {} | 1 |", in_markdown)):
        assert [line for line in text.splitlines() if line in {lines.format(escape(nasty)) for nasty in NASTY}] == [
            lines.format(escape(nasty)) for nasty in NASTY
        ]


def test_a_saved_table_has_the_rows_in_the_order_on_the_screen(opened):
    body = """<table><caption>Robust accuracy</caption><thead><tr><td></td><th colspan="2">worst case</th></tr>
    <tr><th>model</th><th class="num">accuracy</th><th class="num">change</th></tr></thead>
    <tbody><tr><th colspan="3">Linf 8/255</th></tr>
    <tr><th>a</th><td class="num"><span>90.0 %</span><small>85 to 93 %</small></td><td>&minus;3</td></tr>
    <tr><th>b</th><td class="num"><span>7.5 %</span><small>4 to 12 %</small></td><td>+1.5</td></tr></tbody></table>"""
    shown = opened(page_of(body))
    shown.page.get_by_role("button", name="accuracy", exact=True).click()

    assert shown.saved("CSV: save Robust accuracy").decode().splitlines() == [
        "group,model,worst case accuracy,worst case accuracy (details),worst case change",
        "Linf 8/255,b,7.5 %,4 to 12 %,+1.5", "Linf 8/255,a,90.0 %,85 to 93 %,-3",
    ]  # fmt: skip
    assert r"    Linf 8/255 & b & 7.5 \% (4 to 12 \%) & +1.5 \\" in shown.saved("LaTeX: save Robust accuracy").decode()


def test_a_saved_figure_needs_no_page_and_is_light_in_a_dark_window(opened, tmp_path: Path):
    shown = opened(PAGES["finetune"](), scheme="dark")
    svg = shown.saved("SVG: save ")
    png = shown.saved("PNG: save ")
    page = opened(svg.decode()).page  # parses it as HTML; a browser is strict with the file itself below
    file = tmp_path / "figure.svg"
    file.write_bytes(svg)
    page.goto(file.as_uri())

    assert page.evaluate("document.documentElement.tagName") == "svg"
    assert page.locator("text").count() > 5
    assert page.evaluate("getComputedStyle(document.querySelector('rect')).fill") == "rgb(255, 255, 255)"
    assert not any(word in svg.decode() for word in ("var(", "currentColor"))
    assert png.startswith(b"\x89PNG")
    assert shown.messages == []


def test_a_saved_figure_has_its_legend_in_it(opened, tmp_path: Path):
    shown = opened(PAGES["trace"](), scheme="dark")
    names = shown.page.locator("#depth > .legend li").all_inner_texts()
    before = shown.page.locator("figure svg").first.inner_html()
    file = tmp_path / "figure.svg"
    file.write_bytes(shown.saved("SVG: save "))
    after = shown.page.locator("figure svg").first.inner_html()
    page = opened("").page
    page.goto(file.as_uri())
    outside = "each.getBBox().y > document.documentElement.viewBox.baseVal.height"

    assert names
    assert page.locator("text").all_text_contents()[-len(names) :] == names
    assert not page.evaluate(f"[...document.querySelectorAll('text')].some((each) => {outside})")
    assert not any(word in file.read_text() for word in ("var(", "currentColor"))
    assert not page.evaluate("[...document.querySelectorAll('defs *')].some((each) => each.style.fill)")
    assert after == before


def test_another_script_does_not_run_in_a_page(opened):
    shown = opened(page_of("<script>document.title = 'taken'</script>"))

    assert shown.page.title() != "taken"
    assert len(shown.messages) == 1
    assert "Content Security Policy" in shown.messages[0]
