"""The published figures of a rebuild are what was measured, and they are within their bounds."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.paths import ROOT
from tests.torture.rebuild.run import P99_RATIO_MAX, REBUILD_SECONDS_MAX, paragraph

PAGE: Final = ROOT / "docs" / "how-to" / "recover-a-pool.md"
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "tests" / "torture" / "rebuild" / "results.json").read_text(encoding="utf-8")
)


def test_the_page_has_the_figures_of_the_kept_results() -> None:
    assert paragraph(RESULTS) in PAGE.read_text(encoding="utf-8")


def test_a_million_orders_are_rebuilt_within_the_bounds() -> None:
    figures = RESULTS["figures"]
    assert (figures["confirmed"], RESULTS["is_kept"], figures["is_p99_judged"]) == (1_000_000, True, True)
    assert figures["seconds_max"] < REBUILD_SECONDS_MAX
    assert figures["others_p99_ratio"] < P99_RATIO_MAX
