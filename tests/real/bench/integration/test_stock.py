"""The stock benchmark on a real server, in small: what it measures, not how fast it is."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

import pytest
import redis
from rich.console import Console

from bench.display import display_on
from bench.figures import Figure
from bench.micro.stock import measure
from bench.micro.stock.bare import OWN, PROGRAMS, measure_bare
from bench.micro.stock.carts import measure_carts
from bench.micro.stock.context import BenchContext, Sizes, pinned
from bench.micro.stock.grants import measure_grants
from bench.micro.stock.loops import event_loops
from bench.micro.stock.rates import measure_costs, measure_rates
from bench.micro.stock.shards import measure_shards
from bench.micro.stock.steps import measure_steps
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SMALL: Final = Sizes(
    rounds=1,
    bare_calls=2_000,
    batch_orders=3_000,
    callers=50,
    calls=4,
    segment_counts=(1, 20),
    order_counts=(3_000, 6_000),
    refused=50,
    segments_most=40,
    step_rounds=1,
    sharded_stock=900,
    holds_ms=(5,),
    lanes=(2,),
    grant_seconds=2.0,
)


def nobody_told(_: str, __: int, ___: int) -> None:
    """Look away."""


def figures_of(found: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in found}


def keys_of(server: ValkeyServer) -> list[bytes]:
    with redis.Redis.from_url(server.url) as client:
        return [key for key in client.scan_iter() if b":lock:" not in key]  # those lapse


def test_rates_are_taken_beside_the_bare_decrement_and_nothing_is_left(private_valkey: ValkeyServer) -> None:
    found = figures_of(measure_rates(BenchContext(private_valkey.url, SMALL, nobody_told)))
    assert {name: figure.at_least for name, figure in found.items() if figure.at_least} == {
        "reserve awaited / bare EVAL": 1.5,
        "reserve_many / bare at depth 16": 0.8,
        "confirm_many / bare at depth 16": 0.8,
        "reserve_many / bare at depth 16, by CPU of the server": 1.2,
    }
    assert all(figure.value > 0 for figure in found.values())
    assert keys_of(private_valkey) == []


def test_the_event_loops_and_the_parser_are_named_with_the_figures(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "MEASURED", (measure_rates,))
    found = measure.measure_stock(private_valkey.url, display_on(Console(width=120)), SMALL)
    names = [figure.name for figure in found.figures if figure.name.startswith("reserve awaited")]
    assert names == [
        "reserve awaited / bare EVAL",
        "reserve awaited / bare EVAL, on asyncio's own loop",
        *(f"reserve awaited by 50 callers, on {loop}" for loop in ("uvloop", "asyncio's own loop")),
        *(
            f"reserve awaited by 50 callers, on {loop}: CPU of the {process} an order"
            for loop in ("uvloop", "asyncio's own loop")
            for process in ("client", "server")
        ),
    ]
    said = "Replies were read by hiredis; calls were awaited on uvloop and on asyncio's own loop, batches on the first."
    assert said in found.remarks


def test_without_uvloop_everything_runs_on_asyncios_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loops() == {"asyncio's own loop": asyncio.new_event_loop}


def test_costs_are_counted_and_a_refused_order_is_one_command(private_valkey: ValkeyServer) -> None:
    found = figures_of(measure_costs(BenchContext(private_valkey.url, SMALL, nobody_told)))
    assert found["commands a refused order"].value == 1
    assert found["commands a refused order, with a sold-out mark of 0.1 s"].value <= 0.1
    assert 50 < found["memory of a live order and its hold"].value < 300
    assert 5 < found["memory of its ledger line, in batches of 1,000"].value < 100
    assert 30 < found["memory of its ledger entry, when reserved alone"].value < 300
    assert found["reserve_many: server time, 20 segments / 1"].at_most == 1.2
    assert found["reserve_many: server time, 6,000 orders / 3,000"].at_most == 1.1
    assert keys_of(private_valkey) == []


def test_a_cart_of_two_skus_stands_beside_an_order_of_each_sku(private_valkey: ValkeyServer) -> None:
    found = figures_of(measure_carts(BenchContext(private_valkey.url, SMALL, nobody_told)))
    trips = {name: figure.value for name, figure in found.items() if name.endswith(": round trips")}
    assert trips == {"a cart of two skus: round trips": 9.0, "an order of each sku: round trips": 4.0}
    assert [name for name, figure in found.items() if figure.unit == "us" and figure.value > 0] == [
        "a cart of two skus: server CPU",
        "an order of each sku: server CPU",
    ]
    assert found["a cart of two skus / an order of each sku: server CPU"].value > 0
    assert keys_of(private_valkey) == []


def test_the_cpu_of_the_scripts_of_each_operation_is_beside_its_bound_and_a_page_is_bounded(
    private_valkey: ValkeyServer,
) -> None:
    found = figures_of(measure_steps(BenchContext(private_valkey.url, SMALL, nobody_told)))
    page = found.pop("bytes in read_ledger, a page after batches, without the last change")
    assert (page.is_promise, page.at_most, page.is_within) == (True, 262_144, True)
    assert page.value > 240_000
    assert {(figure.at_most, figure.unit) for figure in found.values()} == {(10.0, "ms")}
    assert all(figure.value >= 0 for figure in found.values())
    assert found["server CPU a script: cancel_many, 20 orders of all segments"].detail["calls"] == 1
    assert len(found) == 93
    assert keys_of(private_valkey) == []


def test_transfers_are_counted_until_the_last_unit_of_a_pool_in_shards(private_valkey: ValkeyServer) -> None:
    early, late, refused = measure_shards(BenchContext(private_valkey.url, SMALL, nobody_told))
    assert (early.value, early.at_most) == (1 / 262, 0.05)
    assert 0 < late.value < 0.5
    assert 1 <= refused.value <= 2
    assert keys_of(private_valkey) == []


def test_grants_are_a_share_of_what_the_segments_allow(private_valkey: ValkeyServer) -> None:
    found = measure_grants(BenchContext(private_valkey.url, SMALL, nobody_told))
    share, client = found
    assert share.name == "grants, hold 5 ms, 2 segments: share of the bound"
    assert 0 < share.value <= 1
    assert share.detail["mean_hold_ms"] >= 5
    assert 0 < share.detail["grants_per_s"] <= 2 / 0.005
    assert client.value > 0


@pytest.mark.parametrize("driver", [*filter(shutil.which, PROGRAMS), OWN])
@pytest.mark.parametrize("depth", [1, 16])
def test_the_bare_decrement_is_driven_by_what_is_there(private_valkey: ValkeyServer, driver: str, depth: int) -> None:
    with redis.Redis.from_url(private_valkey.url) as client:
        for by_digest in (False, True):
            found = measure_bare(private_valkey.url, client, 1_600, depth=depth, by_digest=by_digest, driver=driver)
            assert found.per_second > 0
            assert 0.1 < found.server_us < 10_000


def test_a_benchmark_program_that_fails_is_quoted(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.micro.stock.bare.shutil.which", lambda _: "/bin/false")
    with (
        redis.Redis.from_url(private_valkey.url) as client,
        pytest.raises(SegmentedError, match=r"^redis-benchmark did not measure anything: "),
    ):
        measure_bare(private_valkey.url, client, 10, depth=1, by_digest=True, driver="redis-benchmark")


def test_server_and_client_have_cores_of_their_own_if_there_are_two_and_get_them_back(
    private_valkey: ValkeyServer,
) -> None:
    cores = os.sched_getaffinity(0)
    last = max(cores)
    for own in (cores, {last}):
        os.sched_setaffinity(0, own)
        try:
            before = os.sched_getaffinity(private_valkey.pid)
            with pinned(private_valkey.pid) as said:
                is_pinned = said.startswith(f"server on core {last}, client on ")
                assert is_pinned or said == "server and client are not pinned"
                assert is_pinned == (len(own) > 1)
                assert os.sched_getaffinity(private_valkey.pid) == ({last} if is_pinned else before)
                assert os.sched_getaffinity(0) == (own - {last} if is_pinned else own)
            assert os.sched_getaffinity(0) == own
        finally:
            os.sched_setaffinity(0, cores)


def test_the_whole_benchmark_shows_every_figure_and_who_drove_the_bare_one(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "program", lambda: OWN)
    console = Console(width=120, record=True)
    results = measure.measure_stock(private_valkey.url, display_on(console), SMALL)
    results.show(console)
    said = console.export_text()
    written = results.as_json()
    assert written["benchmark"] == "stock"
    assert all(figure["name"] in said for figure in written["figures"])
    assert "that client is written in Python" in said
    assert "not pinned" in said
    assert results.is_kept


def test_a_bound_from_below_is_shown_and_kept_or_not() -> None:
    low, high = Figure("a", 0.9, "", at_least=1.0), Figure("a", 1.0, "", at_least=1.0)
    assert (low.is_within, low.cells()[3:]) == (False, ["goal >= 1", "no"])
    assert (high.is_within, high.cells()[3:]) == (True, ["goal >= 1", "yes"])
