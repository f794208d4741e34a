"""Every page in a real browser: nothing is loaded, nothing fails, everything fits, and axe finds no barrier."""

import pytest

from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

RULES = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_prints_no_error(name, opened):
    shown = opened(PAGES[name]())

    assert shown.messages == []
    assert [url for url in shown.requests if not url.startswith("data:")] == [shown.file.as_uri()]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_not_wider_than_a_phone_or_a_screen(name, opened):
    page = opened(PAGES[name]()).page
    page.evaluate(UNFOLD)

    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", [name for name in PAGES if "hostile" not in name])  # the same page, other words
def test_axe_finds_no_barrier(name, opened):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(PAGES[name]()).page
    page.evaluate(UNFOLD)
    part = {"finetune": ".board > details:first-of-type"}.get(
        name, "html"
    )  # the rest of it is the page of an evaluation
    found = Axe().run(page, context=part, options=RULES).response["violations"]
    page.emulate_media(color_scheme="dark")
    found += page.evaluate("(part) => axe.run(part, {runOnly: ['color-contrast'], resultTypes: ['violations']})", part)[
        "violations"
    ]

    assert [(each["id"], [node["html"][:90] for node in each["nodes"]][:4]) for each in found] == []


@pytest.mark.parametrize("name", PAGES)
def test_paper_shows_what_is_folded_on_the_screen(name, opened):
    page = opened(PAGES[name]()).page
    page.emulate_media(media="print")
    hidden = page.evaluate(
        "async () => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
        "return [...document.querySelectorAll('details > :not(summary, .tools)')]"
        ".filter((each) => !each.checkVisibility({contentVisibilityAuto: true}) || !each.getClientRects().length)"
        ".map((each) => each.outerHTML.slice(0, 60)); }"
    )

    assert hidden == []


@pytest.mark.parametrize("name", PAGES)
def test_without_a_script_every_table_and_figure_is_there(name, opened):
    with_script, without = opened(PAGES[name]()).page, opened(PAGES[name](), script=False).page

    for selector in ("table", "tbody tr", "figure svg", "details"):
        assert without.locator(selector).count() == with_script.locator(selector).count()
    assert without.locator("button").count() == 0


@pytest.mark.parametrize("name", PAGES)
def test_every_sorted_column_of_numbers_is_in_order(name, opened):
    page = opened(PAGES[name]()).page
    page.evaluate(UNFOLD)

    assert page.evaluate(SORT) == []
