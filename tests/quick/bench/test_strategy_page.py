"""The page of benchmarks explains every strategy, and says whether segments and batches change it."""

from __future__ import annotations

import re

from bench.strategies import STRATEGIES
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
ROW = re.compile(r"^\| `(?P<name>[a-z-]+)` \| [^|]+ \| (?P<segments>[^|]*)\| (?P<batches>[^|]*)\|$", re.MULTILINE)


def test_the_page_has_a_row_for_every_strategy_and_knows_what_changes_it() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Strategies\n")[2].partition("\n## ")[0]
    found = {row["name"]: (bool(row["segments"].strip()), bool(row["batches"].strip())) for row in ROW.finditer(page)}
    assert found == {name: (one.has_segments, one.has_batches) for name, one in STRATEGIES.items()}
