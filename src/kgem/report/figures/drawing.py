"""One look for all pictures: colours, fonts, numbers on axes; figures to files and into HTML.

No pyplot and no settings that outlive a call: pictures can be made on a server without a screen.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgem.data.streams import write_to
from kgem.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart with every kind of colour vision.
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
INK, FAINT = "#222222", "#6b6b6b"
FORMATS = {".svg": "svg", ".png": "png"}


STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9a9a9a",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same picture everywhere
    "font.size": 10,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.dpi": 160,
    "svg.hashsalt": "kgem",  # ids follow from what is drawn
    "text.color": INK,
    "xtick.color": "#555555",
    "xtick.labelsize": 9.5,
    "ytick.color": "#555555",
    "ytick.labelsize": 9.5,
}


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write SVG or PNG, by the extension, all or nothing; equal figures give equal files."""
    target = Path(path)
    content = _render(figure, figure_format(target))
    with write_to(target) as file:
        file.write(content)
    return target


def figure_format(path: Path) -> str:
    """What the extension asks for, svg or png; to be asked before a long computation."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(
            f"no figure can be written as {path.suffix or 'a file without extension'}",
            where=str(path),
            remedy=f"use {' or '.join(FORMATS)}",
        )
    return FORMATS[path.suffix.lower()]


def figure_svg(figure: Figure, name: str = "figure") -> str:
    """An <svg> element for an HTML page, with no reference to anything outside it.

    `name` leads all its ids, so that several figures fit on one page.
    """
    text = _render(figure, "svg").decode()
    text = text[text.index("<svg") :]  # without XML declaration and document type, which names a remote file
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace("*{stroke-linejoin", f"#{name}-figure_1 *{{stroke-linejoin", 1)  # not the whole page's
    head, rest = text.split(">", 1)
    # The size is left to the page; the viewBox keeps the proportions.
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest


def _render(figure: Figure, format: str) -> bytes:
    buffer = io.BytesIO()
    nothing = {"Date": None} if format == "svg" else {"Software": None}
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script the font lacks: boxes, and no reason to fail
        figure.savefig(buffer, format=format, metadata=nothing)
    return buffer.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Within it, figures are made and drawn in our look."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def empty_figure(width: float, height: float) -> Figure:
    """A figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def engineering() -> Any:
    """Numbers as 2k, 3M."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def ticks() -> Any:
    """Ticks at 1, 2, 5, 10 ... on a logarithmic axis."""
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1, 2, 5))


def thousands() -> Any:
    """Numbers written out, with commas."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: short(value))


def short(value: float) -> str:
    """A number in as few signs as it needs."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rough_duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
