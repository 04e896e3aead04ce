"""The colours of all figures, each with its counterpart for a dark page, and the style that exchanges the two.

A figure is drawn in the light colours. Its SVG carries a style for readers who prefer dark pages, which names each
colour that the figure uses. Paper, and viewers without styles, show the light figure. The hues are those of M. Okabe
and K. Ito (2008) for the colour-blind; both schemes are lighter or darker than theirs where a line would have a
contrast below 3:1 to its background.
"""

from __future__ import annotations

from typing import Final

import matplotlib as mpl

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#1a1a1a",
    "#b87800",
    "#2e8bc0",
    "#008f68",
    "#0072b2",
    "#b84700",
    "#bc5f93",
)
GREY: Final = "#767676"
REMARK: Final = "#333333"
PAPER: Final = "#ffffff"
LIGHT: Final = "#ebebeb"
"""Marks a region behind points and lines."""
GRID: Final = "#e4e4e4"

_STEPS: Final = 16
_MIDDLE: Final = 0.53
"""The grey of cividis that can be read on both papers: dark colours begin below it, light ones above."""


def _ramp() -> tuple[tuple[str, str], ...]:
    palette = mpl.colormaps["cividis"]
    shares = [one / (_STEPS - 1) for one in range(_STEPS)]
    places = [(_MIDDLE * (1 - share), _MIDDLE + (1 - _MIDDLE) * share) for share in shares]
    return tuple((mpl.colors.to_hex(palette(light)), mpl.colors.to_hex(palette(dark))) for light, dark in places)


RAMP: Final = _ramp()
"""For increasing values, each farther from the paper than the one before: on light paper, and on dark."""

DARK: Final[dict[str, str]] = {
    BLACK: "#e8e8e8",
    ORANGE: "#e69f00",
    SKY: "#a6dcff",
    GREEN: "#14b789",
    BLUE: "#3d9ad6",
    RED: "#f0752f",
    PURPLE: "#d88bb8",
    GREY: "#a0a0a0",
    REMARK: "#c8c8c8",
    PAPER: "#16181a",
    LIGHT: "#2c3033",
    GRID: "#2b2e31",
    **dict(RAMP),
}
"""Each colour of a figure, and its counterpart on a dark page."""


def dark_style(svg: str) -> str:
    """Return the CSS that exchanges the colours of an SVG for readers of dark pages, on a screen only."""
    rules = [
        f'[style*="{what}: {light}"],[{what}="{light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in svg or f'{what}="{light}"' in svg
    ]
    return f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"
