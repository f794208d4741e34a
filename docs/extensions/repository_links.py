"""Links between files of the repository, turned into links between pages of the site.

Pages link to each other and to other files by relative paths, which work on GitHub. On the site a file outside of docs/
is either a page of its own, or there is no page and only the link's text stays.
"""

import posixpath
import re

# Files outside of docs/ that have a page, and that page.
PAGES = {
    "README.md": "docs/index.md",
    "docs/README.md": "docs/index.md",
    "CHANGELOG.md": "docs/generated/changelog.md",
    "CONTRIBUTING.md": "docs/generated/contributing.md",
    "bench/README.md": "docs/generated/benchmarks.md",
    "bench/default.md": "docs/generated/benchmarks-default.md",
    "bench/designs.md": "docs/generated/benchmarks-designs.md",
    "bench/attacks.md": "docs/generated/benchmarks-attacks.md",
}
LINK = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)")


def on_site(text: str, file: str) -> str:
    """The Markdown of a file of the repository, with links that work on the site at the file's page.

    Args:
        text: the content of the file.
        file: its path in the repository, with "/".
    """
    here = posixpath.dirname(PAGES.get(file, file))

    def link(match: "re.Match[str]") -> str:
        target, _, anchor = match[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        page = PAGES.get(path, path)
        if not page.startswith("docs/"):
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(page, here)}{'#' if anchor else ''}{anchor})"

    return LINK.sub(link, text)
