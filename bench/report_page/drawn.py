"""A figure of the report: what it is called, what its caption says, and how it is drawn; or why it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, drawn. `name` is the file's, without its ending."""

    number: str
    name: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class NotDrawn:
    """A figure whose data the session does not have."""

    number: str
    name: str
    title: str
    why: str


Outcome = Drawn | NotDrawn
