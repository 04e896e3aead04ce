"""Each cell of the perverse page as a real sale, in one process of its own, judged by the checker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from bench.engine.cell import Cell, RunAssignment
from bench.engine.record import Run

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SECONDS_MAX: Final = 250.0
STOCK: Final = 60
SCRIPT: Final = """
import sys
from bench import sizing
from bench.engine.run_cell import main
sizing.time_limit = lambda _: 200.0  # each is sold out, also on a machine that stands still for a while
sys.exit(max(main(line) for line in sys.argv[1:]))
"""
BASE: Final[dict[str, Any]] = {
    "strategy": "segment-locks",
    "segments": 8,
    "buyers": 16,
    "section": "sleep",
    "hold_ms": 1.0,
}
SLOW: Final[dict[str, Any]] = {"buyers": 4, "hold_ms": 20.0}
"""A sale must last longer than its warm-up of 10 ms, also where that ends late."""
CELLS: Final[dict[str, dict[str, Any]]] = {
    "one unit": {"stock": 1, "case": "one-unit"},
    "stock below K": {"stock": 5},
    "one client": {"buyers": 1, "hold_ms": 5.0},
    "large orders": {"stock": 80, "quantity": 15},
    "cancel storm": {"case": "cancel-storm", **SLOW},
    "cancel storm without locks": {"case": "cancel-storm", "strategy": "one-script", "segments": 1, **SLOW},
    "cancel storm of a function": {"case": "cancel-storm", "strategy": "redis-function", "segments": 1, **SLOW},
    "restock without locks": {"case": "restock", "strategy": "one-script", "segments": 1, **SLOW},
    "restock": {"case": "restock", **SLOW},
    "several skus": {"skus": 4, "zipf": 1.1, "segments": 2, **SLOW},
}


def assignment(change: dict[str, Any], url: str) -> str:
    cell = Cell.model_validate(BASE | change)
    return RunAssignment(
        cell=cell, url=url, meter_url=url, database=None, warm_up=0.01, stock=cell.stock or STOCK, seconds=0.3, seed=5
    ).model_dump_json()


@pytest.fixture(scope="module")
def runs(valkey_server: ValkeyServer) -> dict[str, Run]:
    """Make all of them, one after the other: to start a process and import Locust costs more than any sale."""
    lines = [assignment(change, valkey_server.url) for change in CELLS.values()]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SCRIPT, *lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:  # its stdin stays open: it leaves when that ends
        said = child.stdout.read() if child.stdout else ""
        assert child.wait(SECONDS_MAX) == 0, said
    records = [Run.model_validate(one["record"]) for one in map(_event, said.splitlines()) if "record" in one]
    return dict(zip(CELLS, records, strict=True))


def _event(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


def test_each_run_keeps_its_promise_and_sells_what_is_there_to_the_last_order(runs: dict[str, Run]) -> None:
    assert {name: run.void for name, run in runs.items()} == dict.fromkeys(CELLS, ())
    assert [name for name, run in runs.items() if run.orders_per_s is None or not run.counts.sold_out] == []
    found = {name: (run.checker.stock, run.checker.sold, run.counts.sold) for name, run in runs.items()}
    assert {name: counts for name, counts in found.items() if not name.startswith("cancel storm")} == {
        "one unit": (1, 1, 1),
        "stock below K": (5, 5, 5),
        "one client": (60, 60, 60),
        "large orders": (80, 75, 5),
        "restock without locks": (STOCK, STOCK, STOCK),
        "restock": (STOCK, STOCK, STOCK),
        "several skus": (STOCK, STOCK, STOCK),
    }
    assert sum(runs["restock"].series.segment_sold) == STOCK


def test_what_is_cancelled_comes_back_and_is_sold_again(runs: dict[str, Run]) -> None:
    for run in (run for name, run in runs.items() if name.startswith("cancel storm")):
        assert run.checker.stock == STOCK // 2
        assert run.counts.cancelled > 0
        assert run.counts.sold - run.counts.cancelled == run.checker.sold


def test_each_sku_sells_what_its_orders_ask_for_and_has_books_of_its_own(runs: dict[str, Run]) -> None:
    run = runs["several skus"]
    assert [(one.stock, one.sold) for one in run.skus] == [(37, 37), (9, 9), (10, 10), (4, 4)]
    assert (run.lanes, run.series.left, len(run.series.segment_sold)) == (4, [], 2)
    assert all(not one.skus for name, one in runs.items() if name != "several skus")
