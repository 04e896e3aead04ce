"""The published loss table is what was counted, in every cell that there is."""

import json
from typing import Any, Final

from tests.support.paths import ROOT
from tests.torture.durability.cells import CELLS
from tests.torture.durability.page import render

PAGE: Final = ROOT / "docs" / "explanation" / "durability.md"
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "tests" / "torture" / "durability" / "results.json").read_text("utf-8")
)
TRIALS_MIN: Final = 5


def test_the_page_has_the_tables_of_the_kept_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [part for part in render(RESULTS) if part not in page] == []


def test_every_cell_was_run_five_times_in_their_order() -> None:
    run = [
        f"{cell['profile']}/{cell['fault']}"
        for cell in RESULTS["figures"]["cells"]
        if len(cell["trials"]) >= TRIALS_MIN
    ]
    assert run == [cell.name for cell in CELLS]
    assert len(run) == 81


def test_where_an_order_database_decides_nothing_is_lost_or_sold_twice() -> None:
    gated = [trial for cell in RESULTS["figures"]["cells"] if "database" in cell["profile"] for trial in cell["trials"]]
    assert sum(trial["forgotten"] for trial in gated) > 0
    assert {(trial["lost"], trial["sold_twice"], trial["unsold"]) for trial in gated} == {(0, 0, 0)}
