"""CPU time of the servers for a million orders, and its price where the reader names that of a core-hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.analysis.cost import mean_server_seconds, price, server_seconds
from bench.engine.cell import Cell
from bench.engine.record import Cpu
from bench.report.facts import Facts, Spot
from bench.report.markdown import table
from bench.report.tables import cell_row
from tests.support.bench.records import CELL, file_of, run
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

WITH_SQL = Cpu(generator=0.5, redis=0.2, database=0.4, machine=0.9, others=0.2, steal=0.0)
IN_SQL = Cell(strategy="pg-hot-row", section="commit")


def test_microseconds_an_order_are_seconds_a_million_and_the_databases_are_added() -> None:
    """A record of the tests has 80 microseconds an order; 0.4 cores at 500 orders a second are 800 more."""
    assert server_seconds(run(orders_per_s=500.0)) == 80.0
    assert server_seconds(run(orders_per_s=500.0, cpu=WITH_SQL)) == 880.0
    assert server_seconds(run(IN_SQL, orders_per_s=500.0, cpu=WITH_SQL)) == 800.0


def test_a_run_without_a_rate_and_a_fixed_stock_beside_a_database_have_no_cost() -> None:
    void = run(orders_per_s=500.0, void=("oversold by 1 unit",))
    fixed = CELL.model_copy(update={"stock": 100})
    assert server_seconds(void) is None
    assert server_seconds(run(fixed, orders_per_s=500.0, cpu=WITH_SQL)) is None
    assert server_seconds(run(fixed, orders_per_s=500.0)) == 80.0
    assert mean_server_seconds([void, run(orders_per_s=500.0), run(orders_per_s=1_000.0, cpu=WITH_SQL)]) == 280.0
    assert mean_server_seconds([void]) is None


def test_a_row_has_a_price_only_where_the_reader_names_one() -> None:
    """880 s at 0.036 an hour."""
    spot = Spot(CELL, "A", (run(orders_per_s=500.0, cpu=WITH_SQL),))
    assert price(880.0, 0.036) == pytest.approx(0.0088)
    assert (cell_row(spot).server_s, cell_row(spot).price) == ("880", "-")
    assert (cell_row(spot, 0.036).server_s, cell_row(spot, 0.036).price) == ("880", "0.0088")
    results = file_of([run(orders_per_s=500.0, cpu=WITH_SQL)])
    plain, priced = table(Facts(results)), table(Facts(results, core_hour=0.036))
    assert plain.splitlines()[0].endswith("| server CPU, µs |")
    assert "price" not in plain.lower()
    assert priced.splitlines()[0].endswith("| server CPU, s a million orders | price of a million orders |")
    assert priced.splitlines()[2].endswith("| 880 | 0.0088 |")
    assert " Price: CPU of Redis and of the database at 0.036 a core-hour." in priced


def test_a_price_that_is_none_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    for words, said in (
        (["--core-hour", "0"], "--core-hour 0: the price of a core-hour is a number above 0, such as 0.04"),
        (["--core-hour", "nan"], "--core-hour nan: the price of a core-hour is a number above 0, such as 0.04"),
        (
            ["--core-hour", "1", "--publish", "elsewhere"],
            "--core-hour with --publish: a published report has no prices",
        ),
    ):
        refused = ran("bench", "report", str(tmp_path), *words, url=None)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
