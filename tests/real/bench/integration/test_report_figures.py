"""All figures of a made-up session, which take seconds to draw."""

from __future__ import annotations

import re

from bench.engine.cell import Cell
from bench.report.drawing import FIGURES
from bench.report.facts import Drawn, Facts, NotDrawn
from bench.report.style import house_style
from tests.support.bench.report_session import run, session

NUMBERS = ["F1", "S", "F3", "F4", "F5", "F10", "F11", "F12", "F13", "F15", "U"]


def test_every_figure_is_drawn_where_the_session_has_its_data() -> None:
    facts = Facts(session())
    with house_style():
        found = {one.number: one for one in (draw(facts) for draw in FIGURES) if isinstance(one, Drawn)}
    assert list(found) == NUMBERS
    for number, one in found.items():
        assert "loop" in f"{one.figure.get_suptitle()} {one.caption}", number
        assert re.search(r"\bn = |\brun|samples|rounds", one.caption), number


def test_every_figure_survives_a_session_of_a_single_void_run() -> None:
    cell = Cell(strategy="no-lock", section="sleep", hold_ms=20)
    facts = Facts(session().model_copy(update={"runs": (run(cell, 0, 0, void=("oversold by 7 units",)),)}))
    with house_style():
        assert {"F1", "F15"} <= {one.number for one in (draw(facts) for draw in FIGURES) if isinstance(one, NotDrawn)}
