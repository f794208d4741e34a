"""What a browser finds in a page."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

from robustkit.reports.shared.rendering import script

# A name of a model, a layer or a class that tries to become markup, a script or a terminal sequence.
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&$x$"
_VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags with attributes and texts by tag; a tag that is closed out of order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def words(self, between: str = " ") -> str:
        """The text that a reader sees; `between` stands between the texts of two tags."""
        return " ".join(between.join(text for tag, text in self.texts if tag not in ("style", "script")).split())

    def data(self) -> Any:
        """The JSON in the page."""
        return json.loads("".join(text for tag, text in self.texts if tag == "script" and text != script()))

    def ids(self) -> list[str | None]:
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]

    def check_safe(self) -> None:
        """All tags are closed, nothing is loaded from elsewhere, nothing runs, and no name has become markup."""
        links = [attrs[name] for _, attrs in self.tags for name in ("src", "href", "srcset", "action") if name in attrs]
        assert self.open == []
        assert all(link and link.startswith(("data:image/png;base64,", "#")) for link in links)
        assert not re.search(r"url\((?!#)|@import", self.source)
        assert "http" not in "".join(text for tag, text in self.texts if tag == "style")
        assert "link" not in dict(self.tags)
        assert [attrs.get("type") for tag, attrs in self.tags if tag == "script"] == ["application/json", None]
        assert [text for tag, text in self.texts if tag == "script"][-1] == script()
        assert not any(name.startswith("on") for _, attrs in self.tags for name in attrs)
        (policy,) = [attrs["content"] for _, attrs in self.tags if attrs.get("http-equiv")]
        hashed = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
        assert policy == f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; img-src data:"
        assert "\x1b" not in self.words()
