"""A figure as SVG: its text is text, its colours follow the reader's scheme, and its marks have names.

A mark is a point, a bar or a cross that stands for a cell. Its figure gives it a name by `set_gid`: one of `MARKS`, a
colon, and what a reader is to see who points at it. In the SVG it is a group of the class "mark" with that `<title>`,
which browsers show as a tooltip. Other groups have no id, since nothing refers to them.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import matplotlib as mpl

from bench.report.colours import dark_style
from segmented.models.ids import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINT, HOLLOW, VOID = "point", "hollow", "void"
MARKS: Final = (POINT, HOLLOW, VOID)
NAMESPACE: Final = "http://www.w3.org/2000/svg"
NO_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
NOT_IN_XML: Final = dict.fromkeys((0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}")
ET.register_namespace("", NAMESPACE)
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def as_svg(figure: Figure, name: str) -> str:
    """Return the figure as SVG; the same figure gives the same bytes, and other names other ids."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    drawn = visible(buffer.getvalue()).translate(NOT_IN_XML)
    root = ET.fromstring(drawn)  # noqa: S314  # matplotlib wrote it
    for group in root.iter(f"{{{NAMESPACE}}}g"):
        kind, _, said = group.attrib.pop("id", "").partition(":")
        if said and kind in MARKS:
            group.set("class", "mark")
            title = ET.Element(f"{{{NAMESPACE}}}title")
            title.text = said
            group.insert(0, title)
    style = ET.Element(f"{{{NAMESPACE}}}style")
    style.text = dark_style(drawn)
    root.insert(0, style)
    return f"{ET.tostring(root, encoding='unicode')}\n"


def inlined(svg: str, title: str) -> str:
    """Return an SVG for embedding in HTML: with flexible width, and a name."""
    head, _, rest = svg.partition(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label={quoteattr(title)}>{rest}'
