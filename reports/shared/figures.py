"""Line charts as SVG inside a page: text stays text, colours come from the page's theme, ids are unique on the page.

matplotlib draws with its defaults, whatever the user's matplotlibrc says, so the bytes depend on the data alone.
"""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Placeholder colours, which `svg_of` replaces by the colours of the page.
INK, RULE = "#010203", "#040506"
SERIES: Final = tuple(f"#0a0b{i:02x}" for i in range(7))
SIZE: Final = (4.0, 2.7)  # inches of 72 units: letters of 9 units are 11 pixels on a phone
MARKERS: Final = "os^Dv*P"  # in the order of MARKS, which the legend shows
MARKS: Final = "●■▲◆▼★✚"


_HOVER: Final = "hover:"
_HOVER_GROUP: Final = re.compile(
    rf'<g id=(?:"{_HOVER}([^"]*)"|\'{_HOVER}([^\']*)\')>\s*(?:<defs>(?:(?!</defs>).)*</defs>\s*)?<g[^>]*>\s*'
    r'<use [^>]*?x="([^"]*)" y="([^"]*)"[^>]*/>\s*</g>\s*</g>',
    re.DOTALL,
)


class Legend(NamedTuple):
    """The mark of one line and the number of its colour."""

    name: str
    mark: str
    colour: int


class Figure(NamedTuple):
    """An SVG to inline, and its content in a sentence for readers who cannot see it."""

    title: str
    svg: str
    text: str


@contextmanager
def axes_in(size: tuple[float, float], box: tuple[float, float, float, float], prefix: str) -> Iterator["Axes"]:
    """Empty axes of a new figure; `svg_of` must be called before the context ends.

    Args:
        size: width and height of the figure, in inches of 72 units.
        box: left, bottom, width and height of the axes, as shares of the figure.
        prefix: what the ids of this figure start with.
    """
    # Not pyplot: it keeps figures alive and picks a window system.
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    settings = {"svg.fonttype": "none", "svg.hashsalt": prefix, "font.size": 9, "font.family": "DejaVu Sans"}
    with matplotlib.style.context(["default", settings]):
        yield Canvas(figsize=size).add_axes(box)


def style_axes(axes: "Axes") -> None:
    """Give the axes the look of all charts: horizontal rules, no frame, the page's ink."""
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    axes.tick_params(which="both", color=INK, labelcolor=INK)
    axes.tick_params(axis="y", which="both", length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def add_hover_texts(axes: "Axes", points: Iterable[tuple[float, float, str]]) -> None:
    """Let a browser show a text where the mouse rests on a point (x, y); nothing is drawn there."""
    for x, y, text in points:
        axes.plot([x], [y], marker="o", markersize=1, linestyle="none", alpha=0, gid=f"{_HOVER}{text}")


def svg_of(axes: "Axes", prefix: str) -> str:
    """The figure as a bare `<svg>`: unique ids, the page's colours and fonts, no style sheet for the whole page."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r'<svg \1 aria-hidden="true" focusable="false">', svg, count=1
    )
    svg = _HOVER_GROUP.sub(_hover_circle, svg)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}").replace('xlink:href="#', f'href="#{prefix}')
    svg = re.sub(r" ?font-family: [^;\"]*;", "", svg)
    for number, colour in enumerate(SERIES):
        svg = svg.replace(colour, f"var(--s{number})")
    return svg.replace(INK, "currentColor").replace(RULE, "var(--rule)")


def _hover_circle(group: re.Match[str]) -> str:
    double_quoted, quoted, x, y = group.groups()
    text = quoted if double_quoted is None else double_quoted
    return f'<circle class="hover" cx="{x}" cy="{y}" r="7" fill-opacity="0"><title>{text}</title></circle>'
