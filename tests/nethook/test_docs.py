"""Every block of Python in docs/hooks runs and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(set((DOCS / "hooks").glob("*.md")) - {DOCS / "hooks" / "index.md"})
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"# -> (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_code_of_a_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text, names = page.read_text("utf-8"), {"__name__": "page"}
    blocks = list(BLOCK.finditer(text))

    assert blocks
    for block in blocks:
        # Empty lines in front, so that errors name the line of the page.
        before = "\n" * text.count("\n", 0, block.start(1))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(before + block[1], str(page), "exec"), names)
        assert printed.getvalue().splitlines() == PRINTED.findall(block[1]), f"{page.name}: {block[1]}"


def test_the_index_links_to_every_page_and_to_nothing_else():
    linked = set(re.findall(r"\((\S*?\.md)\)", (DOCS / "hooks" / "index.md").read_text("utf-8")))

    assert linked == {page.name for page in PAGES}
