"""What a page of the site asks other hosts for: scripts, styles, fonts, pictures, frames; no links to follow."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

OUTSIDE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
OUTSIDE_IN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?\s*(?:https?:)?//[^"')\s]+""", re.IGNORECASE)
LOADING = ("src", "srcset", "data", "poster", "action")
FOLLOWED = ("a", "area", "base")  # their href is loaded when somebody clicks, if at all


def outside_requests(path: Path) -> list[str]:
    """The requests of an HTML page or a style sheet; other files have none."""
    if path.suffix == ".css":
        return OUTSIDE_IN_CSS.findall(path.read_text(encoding="utf-8"))
    if path.suffix != ".html":
        return []
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page.outside


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "link" and ("rel", "canonical") in attrs:
            return
        for name, value in attrs:
            loads = name in LOADING or (name == "href" and tag not in FOLLOWED)
            if loads and OUTSIDE.match(value or ""):
                self.outside.append(f"<{tag} {name}={value}>")
            if name == "style":
                self.outside += OUTSIDE_IN_CSS.findall(value or "")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.outside += OUTSIDE_IN_CSS.findall(data)
