"""The deduplication benchmark on a real server, in small: what it measures, not how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil
import pytest
import redis
from rich.console import Console

from bench.micro.dedup import KINDS, RECORDS, Sizes, at_database, measure_dedup, running_worker
from bench.results import display_on
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SMALL: Final = Sizes(rounds=3, tasks=5, records=2_000, live_keys=(1_000, 3_000), claims=1_000)


def is_empty(server: ValkeyServer) -> bool:
    with redis.Redis.from_url(server.url) as client:
        return not client.info("keyspace")


def test_a_real_worker_takes_two_round_trips_for_a_task_and_its_publisher_one(private_valkey: ValkeyServer) -> None:
    with running_worker(private_valkey.url) as driver:
        pid = driver.pid
        rounds = [[f"item-{number}-{index}" for index in range(5)] for number in range(3)]
        found = {}
        for kind in KINDS:
            driver.burst(kind, ["first"])  # has the server cache the scripts
            found[kind] = [driver.burst(kind, items) for items in rounds]
    assert not psutil.pid_exists(pid)
    # the least of three: a worker that stood still may have renewed a claim or opened a connection meanwhile
    assert {
        kind: (min(one.published_trips for one in bursts), min(one.worked_trips for one in bursts))
        for kind, bursts in found.items()
    } == {
        "plain": (0, 0),
        "plain, one script": (0, 1),
        "unique": (1, 2),
        "serial": (0, 2),
        "unique, with an effect": (1, 2),
    }
    assert all(burst.worked > 0 and burst.worked_cpu > 0 for bursts in found.values() for burst in bursts)
    with redis.Redis.from_url(at_database(private_valkey.url, RECORDS)) as client:
        counts = [client.get(f"bench:counts:{item}") for items in rounds for item in items]
    assert counts == [b"2"] * 15  # by a script, and by an effect


def test_the_whole_benchmark_shows_every_figure_and_empties_the_server(private_valkey: ValkeyServer) -> None:
    console = Console(width=140, record=True)
    results = measure_dedup(private_valkey.url, display_on(console), SMALL)
    results.show(console)
    said = console.export_text()
    written = results.as_json()
    assert written["benchmark"] == "dedup"
    assert all(figure["name"] in said for figure in written["figures"])
    assert {figure["name"] for figure in written["figures"] if figure["is_promise"]} == {
        f"{point}: round trips of {where}"
        for point in ("unique", "serial", "unique, with an effect")
        for where in ("the worker", "apply_async")
    }
    assert results.is_kept
    assert is_empty(private_valkey)


def test_each_part_of_the_benchmark_ends_when_its_time_is_over(private_valkey: ValkeyServer) -> None:
    sizes = Sizes(rounds=99, tasks=2, records=100, live_keys=(500, 99_000), claims=99_000, seconds=0.0)
    found = {figure.name: figure for figure in measure_dedup(private_valkey.url, display_on(Console()), sizes).figures}
    assert found["cores that others used meanwhile"].detail["rounds"] == 3
    assert "a claim: server time, 1,000 live keys / 500" in found


def test_a_server_that_holds_keys_is_refused_and_keeps_them(private_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(at_database(private_valkey.url, 5)) as client:
        client.set("theirs", "1")
        with pytest.raises(InvalidInput, match="holds keys: name an empty one, since it is emptied in the end"):
            measure_dedup(private_valkey.url, display_on(Console()), SMALL)
        assert client.get("theirs") == b"1"
