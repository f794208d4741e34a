"""Every page in a real browser: nothing is loaded, nothing fails, everything fits, and axe finds no barrier."""

from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from tests.browser.conftest import Opened, Windows, opener
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

RULES = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
FOLD = "(open) => document.querySelectorAll('details').forEach((each) => { each.open = open; })"
OVERFLOW = """() => [...document.querySelectorAll("body *")]
    .filter((each) => !each.closest(".scroll, pre, svg") && each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => each.outerHTML.slice(0, 80))"""

# Clicks on every header of a column of numbers, and reads the columns by where their cells are.
SORT = r"""() => {
    const number = (text) => parseFloat(text.replace("\u2212", "-").replace(/^[^\d-]*/, "").replaceAll(",", ""));
    const middle = (cell) => { const box = cell.getBoundingClientRect(); return box.left + box.width / 2; };
    const wrong = [];
    for (const button of document.querySelectorAll("thead th.num > .sort")) {
        const head = button.closest("th");
        if (!head.getBoundingClientRect().width) continue;
        const here = (cell) => cell.colSpan === 1 && Math.abs(middle(cell) - middle(head)) < 2;
        button.click();
        for (const body of head.closest("table").tBodies) {
            const rows = [...body.rows].filter((row) => !row.matches(".group, .member"));
            const cells = rows.map((row) => [...row.cells].find(here)).filter(Boolean);
            const values = cells.map((cell) => number((cell.querySelector(".value") ?? cell).textContent));
            const known = values.filter((value) => !Number.isNaN(value));
            if (known.some((value, place) => place && value < known[place - 1])) wrong.push([head.textContent, values]);
        }
    }
    return wrong;
}"""


NAMES = [name for name in PAGES if "hostile" not in name]  # that page is another one with other words


@pytest.fixture(scope="module")
def once(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Opened]]:
    """Opens each page once for all tests: opening it takes longer than what is looked at."""
    with opener(windows, tmp_path_factory.mktemp("pages")) as opened:
        yield cache(lambda name: opened(PAGES[name]()))


def unfolded(shown: Opened) -> Any:
    """The page on a wide and light screen, with everything open."""
    shown.page.emulate_media(media="screen", color_scheme="light")
    shown.page.set_viewport_size({"width": 1440, "height": 900})
    shown.page.evaluate(FOLD, True)
    return shown.page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_prints_no_error(name, once):
    shown = once(name)

    assert shown.messages == []
    assert [url for url in shown.requests if not url.startswith("data:")] == [shown.file.as_uri()]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_not_wider_than_a_phone_or_a_screen(name, once):
    page = unfolded(once(name))

    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_no_barrier(name, once):
    from axe_playwright_python.sync_playwright import Axe

    page = unfolded(once(name))
    page.add_style_tag(content=".scroll { background: none !important; }")  # axe judges no text on a gradient
    # The rest of the page of a fine-tuning is that of an evaluation.
    part = ".board > details:first-of-type" if name == "finetune" else "html"
    found = Axe().run(page, context=part, options=RULES).response["violations"]
    page.emulate_media(color_scheme="dark")
    found += page.evaluate("(part) => axe.run(part, {runOnly: ['color-contrast'], resultTypes: ['violations']})", part)[
        "violations"
    ]

    assert [(each["id"], [node["html"][:90] for node in each["nodes"]][:4]) for each in found] == []


@pytest.mark.parametrize("name", NAMES)
def test_paper_shows_what_is_folded_on_the_screen(name, once):
    page = once(name).page
    page.evaluate(FOLD, False)
    page.emulate_media(media="print")
    hidden = page.evaluate(
        "async () => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
        "return [...document.querySelectorAll('details > :not(summary, .tools)')]"
        ".filter((each) => !each.checkVisibility({contentVisibilityAuto: true}) || !each.getClientRects().length)"
        ".map((each) => each.outerHTML.slice(0, 60)); }"
    )

    assert hidden == []


@pytest.mark.parametrize("name", NAMES)
def test_without_a_script_every_table_and_figure_is_there(name, once, opened):
    with_script, without = once(name).page, opened(PAGES[name](), script=False).page

    for selector in ("table", "tbody tr", "figure svg", "details"):
        assert without.locator(selector).count() == with_script.locator(selector).count()
    assert without.locator("button").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_sorted_column_of_numbers_is_in_order(name, once):
    assert unfolded(once(name)).evaluate(SORT) == []


def edge(page: Any, table: Any) -> list[bytes]:
    """The pixels at the table's right edge, line by line."""
    box = table.bounding_box()
    clip = {"x": box["x"] + box["width"] - 12, "y": box["y"], "width": 12, "height": box["height"]}
    picture = Image.open(BytesIO(page.screenshot(clip=clip))).convert("RGB")
    pixels = picture.tobytes()
    return [pixels[start : start + 3 * picture.width] for start in range(0, len(pixels), 3 * picture.width)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [pytest.param("finetune", marks=pytest.mark.slow), "diagnose"])
def test_the_edge_of_a_table_is_shaded_as_long_as_there_is_more_to_scroll(name, scheme, opened):
    page = opened(PAGES[name](), width=390, scheme=scheme, script=False).page
    page.evaluate(FOLD, True)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 390, "height": height})  # every table is on the screen
    cut = [each for each in page.locator(".scroll").all() if each.evaluate("(e) => e.scrollWidth > e.clientWidth + 1")]

    assert cut
    for table in cut:
        for left, least, most in ((0, 0.9, 1.0), (9999, 0.0, 0.0)):
            table.evaluate("(e, left) => { e.style.background = ''; e.scrollLeft = left; }", left)
            shown = edge(page, table)
            table.evaluate("(e) => { e.style.background = 'none'; }")
            plain = edge(page, table)
            changed = sum(one != other for one, other in zip(shown, plain, strict=True)) / len(plain)
            assert least <= changed <= most, table.get_attribute("aria-label")
