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
    """A page in a window of the browser, with what it printed and what it asked for."""

    page: Any  # of playwright
    script: bool
    file: Path = Path()
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def show(self, file: Path, width: int, scheme: str) -> None:
        """Another page in this window, whose last one leaves nothing behind."""
        self.file = file
        self.messages.clear()
        self.requests.clear()
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(media="screen", color_scheme=scheme)
        self.page.goto(file.as_uri())

    def saved(self, name: str) -> bytes:
        """The file that a click on a button saves."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=name).first.click()
        return Path(download.value.path()).read_bytes()


class Windows:
    """Windows with and without scripts; each is used again, for a new one takes longer than what most tests look at."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: dict[bool, Any] = {}
        self._idle: dict[bool, list[Opened]] = {True: [], False: []}

    def take(self, script: bool) -> Opened:
        if self._idle[script]:
            return self._idle[script].pop()
        if script not in self._contexts:
            self._contexts[script] = self._browser.new_context(java_script_enabled=script)
            self._contexts[script].set_default_timeout(10_000)
        return Opened(self._contexts[script].new_page(), script)

    def give_back(self, shown: Opened) -> None:
        self._idle[shown.script].append(shown)


@pytest.fixture(scope="session")
def windows() -> Iterator[Windows]:
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
        yield Windows(started)
        started.close()


@pytest.fixture
def opened(windows: Windows, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the text of a page from a file, in a window of some width and colour scheme."""
    with opener(windows, tmp_path) as work:
        yield work


@contextmanager
def opener(windows: Windows, folder: Path) -> Iterator[Callable[..., Opened]]:
    """What `opened` gives; files are in `folder`, and windows are given back at the end."""
    taken: list[Opened] = []

    def work(text: str, width: int = 1440, scheme: str = "light", script: bool = True) -> Opened:
        file = folder / f"page{len(taken)}.html"
        file.write_text(text, encoding="utf-8")
        taken.append(windows.take(script))
        taken[-1].show(file, width, scheme)
        return taken[-1]

    yield work
    for shown in taken:
        windows.give_back(shown)
