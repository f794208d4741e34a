"""One browser for all tests of pages; without a browser they are skipped, unless ROBUSTKIT_REQUIRE_BROWSER is 1."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Opened:
    """A page in the browser, with what it printed and what it asked for."""

    page: Any  # of playwright
    file: Path
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def saved(self, name: str) -> bytes:
        """The file that a click on a button saves."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=name).first.click()
        return Path(download.value.path()).read_bytes()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    file = next(filter(None, map(shutil.which, BROWSERS)), None)
    missing = "no " + " or ".join(BROWSERS) if file is None else ""
    if any(importlib.util.find_spec(name) is None for name in ("playwright", "axe_playwright_python")):
        missing = "pip install '.[test]' is missing"
    if missing:
        if os.environ.get("ROBUSTKIT_REQUIRE_BROWSER") == "1":
            pytest.fail(f"Pages cannot be tested: {missing}.")
        pytest.skip(f"Pages cannot be tested: {missing}.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=file, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the text of a page from a file, in a window of some width and colour scheme."""
    with opener(browser, tmp_path) as work:
        yield work


@contextmanager
def opener(browser: Any, folder: Path) -> Iterator[Callable[..., Opened]]:
    """What `opened` gives; files are in `folder`, and windows are closed at the end."""
    contexts = []

    def work(text: str, width: int = 1440, scheme: str = "light", script: bool = True) -> Opened:
        file = folder / f"page{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        shown = Opened(context.new_page(), file)
        shown.page.on("console", lambda message: shown.messages.append(message.text))
        shown.page.on("pageerror", lambda error: shown.messages.append(str(error)))
        shown.page.on("dialog", lambda dialog: shown.messages.append(dialog.message))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(file.as_uri())
        return shown

    yield work
    for context in contexts:
        context.close()
