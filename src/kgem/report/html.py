"""Pieces of an HTML page that needs nothing from outside; whatever comes from a graph is escaped."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATE = "page.html"
_NAMED = re.compile(r"(.+) (\([A-Za-z][\w+.-]*:\S+\))", re.DOTALL)  # a name and its address, as names are shown
# Characters that turn the order of what follows around, or hide: shown as what they are.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


class Section(NamedTuple):
    """A part of the page: where links lead, its short name, its title and its content."""

    anchor: str
    name: str
    title: str
    body: str


def esc(text: object) -> str:
    """Text from a graph or a user as HTML: no markup, no character that hides or reorders."""
    shown = "".join(c if unicodedata.category(c) not in _HIDDEN else f"\\u{{{ord(c):x}}}" for c in str(text))
    return html.escape(shown, quote=True)


def breakable(label: str) -> str:
    """A label as HTML that may be broken after the marks of an address; an address beside a name is small."""
    name, address = found.groups() if (found := _NAMED.fullmatch(label)) else (label, "")
    return _break(name) + (f" <small>{_break(address)}</small>" if address else "")


def _break(text: str) -> str:
    return "<wbr>".join(esc(piece) for piece in re.split(r"(?<=[/_.:#?=&-])(?![/_.:#?=&-])", text))


def bar(share: float) -> str:
    """A bar for a number from 0 to 1."""
    return f'<span class="bar"><i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i></span>'


def tag(text: str) -> str:
    """A small label beside a text."""
    return f'<span class="tag">{esc(text)}</span>'


def note(text: str) -> str:
    """A paragraph beside the matter; the text is HTML."""
    return f'<p class="note">{text}</p>'


def card(*content: str) -> str:
    """A framed part of a section."""
    return f'<div class="card">{"".join(content)}</div>'


def pair(*cards: str) -> str:
    """Cards beside each other where there is room."""
    return f'<div class="pair">{"".join(cards)}</div>'


def details(title: str, content: str, kind: str = "") -> str:
    """Content that is shown when its title is clicked; `kind` is its class."""
    opening = f'<details class="{kind}">' if kind else "<details>"
    return f"{opening}<summary>{esc(title)}</summary>{content}</details>"


def preformatted(text: str) -> str:
    """Text with its lines as they are."""
    return f"<pre>{chr(10).join(esc(line) for line in text.splitlines())}</pre>"


def picture(figure: Figure, name: str, about: str, *, narrow: bool = False) -> str:
    """A figure in the page itself, with words for who cannot see it."""
    from kgem.report.figures import figure_svg

    kind = "card picture narrow" if narrow else "card picture"
    return f'<div class="{kind}" role="img" aria-label="{esc(about)}">{figure_svg(figure, name)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table whose first `left` columns hold text and the others numbers; cells are HTML."""

    def kind(place: int) -> str:
        return "t" if place < left else "n"

    head = "".join(f'<th scope="col" class="{kind(i)}">{esc(name)}</th>' for i, name in enumerate(columns))
    cells = ("".join(f'<td class="{kind(i)}">{cell}</td>' for i, cell in enumerate(row)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def tiles(numbers: Mapping[str, tuple[str, str]]) -> str:
    """Large numbers with a name above and an explanation below."""
    each = (
        f'<div class="tile"><dt>{esc(name)}</dt><dd>{value}<small>{esc(about)}</small></dd></div>'
        for name, (value, about) in numbers.items()
    )
    return f'<dl class="tiles">{"".join(each)}</dl>'


def assemble_page(title: str, lead: str, head: str, sections: Sequence[Section], footer: str) -> str:
    """The whole page; `title` is text, the rest is HTML."""
    template = Template(resources.files("kgem.report").joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    pieces: dict[str, Any] = {
        "title": esc(f"{title} · kgem report"),
        "heading": esc(title),
        "lead": lead,
        "tiles": head,
        "nav": "".join(f'<a href="#{each.anchor}">{esc(each.name)}</a>' for each in sections),
        "sections": "\n".join(
            f'<section><h2 id="{each.anchor}">{esc(each.title)}</h2>\n{each.body}</section>' for each in sections
        ),
        "footer": footer,
    }
    return template.substitute(pieces)
