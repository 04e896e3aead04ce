"""The published loss table is what was counted, in every cell that there is."""

from __future__ import annotations

import json
from typing import Any, Final

from bench.proof.durability.cells import CELLS
from bench.proof.durability.page import render
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "durability.md"
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "bench" / "proof" / "durability" / "results.json").read_text("utf-8")
)
TRIALS_MIN: Final = 5


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(RESULTS)


def test_every_cell_was_run_five_times_in_their_order() -> None:
    run = [f"{cell['profile']}/{cell['fault']}" for cell in RESULTS["cells"] if len(cell["trials"]) >= TRIALS_MIN]
    assert run == [cell.name for cell in CELLS]
    assert len(run) == 81


def test_where_an_order_database_decides_nothing_is_lost_or_sold_twice() -> None:
    gated = [trial for cell in RESULTS["cells"] if "database" in cell["profile"] for trial in cell["trials"]]
    assert sum(trial["forgotten"] for trial in gated) > 0
    assert {(trial["lost"], trial["sold_twice"], trial["unsold"]) for trial in gated} == {(0, 0, 0)}
