"""The README's picture: the top of a report as a browser shows it.

    robustkit evaluate --model resnet18 --out run
    python docs/screenshot.py run/report.html docs/images/report.webp

Needs playwright (`pip install playwright`) and a Chromium: the system's, or playwright's own.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT, SCALE = 1100, 905, 1.5


def picture(page: Path) -> Image.Image:
    """The first screen of a page in light colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light"
        )
        tab.goto(page.resolve().as_uri())
        png = tab.screenshot()
        browser.close()
    return Image.open(io.BytesIO(png))


if __name__ == "__main__":
    report, target = map(Path, sys.argv[1:])
    picture(report).save(target, quality=80, method=6)
