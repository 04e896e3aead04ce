"""All figures of a made-up session, which take seconds to draw."""

from __future__ import annotations

import re

from bench.report.drawing import FIGURES
from bench.report.facts import Drawn, Facts
from bench.report.style import house_style
from tests.support.bench.report_session import session

NUMBERS = ["F1", "S", "F3", "F4", "F5", "F10", "F11", "F12", "F13", "F15", "U"]


def test_every_figure_is_drawn_where_the_session_has_its_data() -> None:
    facts = Facts(session())
    with house_style():
        found = {one.number: one for one in (draw(facts) for draw in FIGURES) if isinstance(one, Drawn)}
    assert list(found) == NUMBERS
    for number, one in found.items():
        assert "loop" in f"{one.figure.get_suptitle()} {one.caption}", number
        assert re.search(r"\bn = |\brun|samples|rounds", one.caption), number
