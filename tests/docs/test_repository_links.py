"""Links that work on GitHub also work on the site, where files outside of docs/ lie elsewhere."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "extensions"


@pytest.fixture
def on_site(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    from repository_links import on_site

    yield on_site
    del sys.modules["repository_links"]


@pytest.mark.parametrize(
    ("link", "file", "expected"),
    [
        ("../bench/README.md#the-dry-run", "docs/default.md", "generated/benchmarks.md#the-dry-run"),
        ("docs/numbers.md", "CHANGELOG.md", "../numbers.md"),
        ("attacks.md", "bench/README.md", "benchmarks-attacks.md"),
    ],
)
def test_a_file_that_has_a_page_is_linked_to_its_page(on_site, link, file, expected):
    assert on_site(f"[a]({link})", file) == f"[a]({expected})"


def test_of_a_file_without_a_page_only_the_text_stays(on_site):
    assert on_site("see [the template](../attacks/_template.py).", "docs/new-attack.md") == "see the template."


@pytest.mark.parametrize("link", ["[a](https://a.org/1)", "[a](#here)", "[a](numbers.md#b)", "![a](a.png)"])
def test_other_links_stay(on_site, link):
    assert on_site(link, "docs/default.md") == link
