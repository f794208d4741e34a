"""The Python of the pages runs and prints what the pages say. Other pages have tests beside what they describe."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = ["net", "train"]  # that pages tell their readers to save
PAGES = [
    "fine-tuning",
    "hooks/index",
    "masking",
    "other-libraries",
    "own-data",
    "own-model",
    "quickstart",
    "statistics",
]


@pytest.fixture(autouse=True)
def modules():
    yield
    for name in FILES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in BLOCK.findall((DOCS / f"{page}.md").read_text("utf-8")):
        if file := re.match(r"# (\w+\.py)$", block, re.MULTILINE):
            (tmp_path / file[1]).write_text(block, "utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, f"docs/{page}.md", "exec"), {"__name__": "page"})
        promised = re.findall(r"^# -> (.*)$", block, re.MULTILINE)

        assert not promised or printed.getvalue().splitlines() == promised
