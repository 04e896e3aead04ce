"""The tables of measured costs on the pages are those of the results files."""

from __future__ import annotations

import json
from typing import Any

from bench.micro import envelope_costs
from bench.micro.profile_costs import IO_ROWS, ROWS, io_table, table
from tests.support.paths import ROOT


def results_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "bench" / "micro" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_page_of_profiles_has_the_tables_of_the_results() -> None:
    page = (ROOT / "docs" / "how-to" / "choose-a-profile.md").read_text(encoding="utf-8")
    results, beside = results_of("profile_costs"), results_of("io_thread_costs")
    assert ["\n".join(lines) in page for lines in (table(results), io_table(beside))] == [True, True]
    assert [(row["profile"], row["server"]) for row in results["rows"]] == [(row.profile, row.server) for row in ROWS]
    assert [row["server"] for row in beside["rows"]] == [row.server for row in IO_ROWS]
    assert [row["reads_of_other_threads"] > 0 for row in beside["rows"]] == [False, False, True]


def test_the_page_of_the_durable_gate_has_the_table_of_the_results() -> None:
    page = (ROOT / "docs" / "explanation" / "durable-gate.md").read_text(encoding="utf-8")
    assert "\n".join(envelope_costs.table(results_of("envelope_costs"))) in page
