"""The stock benchmark on a real server, in small: what it measures, not how fast it is."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import redis
from rich.console import Console

from bench.micro.stock import BenchContext, Sizes, measure, pinned
from bench.micro.stock.measure import measure_carts
from bench.micro.stock.rates import OWN, PROGRAMS, measure_bare, measure_rates
from bench.micro.stock.steps import measure_steps
from bench.results import display_on

if TYPE_CHECKING:
    import pytest

    from bench.figures import Figure
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


def test_the_cpu_of_each_operation_is_beside_its_bound_and_a_page_is_bounded(private_valkey: ValkeyServer) -> None:
    found = figures_of(measure_steps(BenchContext(private_valkey.url, SMALL, nobody_told)))
    page = found.pop("bytes in read_ledger, a page after batches, without the last change")
    assert (page.is_promise, page.at_most, page.is_within) == (True, 262_144, True)
    assert page.value > 240_000
    assert {(figure.at_most, figure.unit) for figure in found.values()} == {(10.0, "ms")}
    assert all(figure.value >= 0 for figure in found.values())
    assert found["server CPU a script: cancel_many, 20 orders of all segments"].detail["calls"] == 1
    assert len(found) == 93
    assert keys_of(private_valkey) == []


def test_the_bare_decrement_is_driven_by_what_is_there(private_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(private_valkey.url) as client:
        for driver in (*filter(shutil.which, PROGRAMS), OWN):
            found = measure_bare(private_valkey.url, client, 1_600, depth=16, by_digest=True, driver=driver)
            assert min(found.per_second, found.server_us) > 0


def test_server_and_client_get_their_own_cores_of_two_and_the_old_ones_back(private_valkey: ValkeyServer) -> None:
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


def test_the_whole_benchmark_shows_every_figure_and_leaves_nothing(
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
    assert results.is_kept
    found = {figure["name"]: figure["value"] for figure in written["figures"]}
    refused = (found["commands a refused order"], found["commands a refused order, in shards"])
    assert tuple(map(round, refused)) == (1, 1)  # and one more of the first order of a process
    assert found["a cart of two skus: round trips"] == 9
    assert 0 < found["grants, hold 5 ms, 2 segments: share of the bound"] <= 1
    assert keys_of(private_valkey) == []
