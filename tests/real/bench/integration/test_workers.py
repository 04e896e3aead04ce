"""The workers' benchmark with real servers and workers, in small: what it measures, not how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil
import pytest
import redis
from rich.console import Console

from bench.figures import Arm
from bench.micro.workers import EMPTY_TASK, KINDS, Sizes, faults
from bench.micro.workers.lanes import SINGLES, LaneSizes, measure_lanes
from bench.micro.workers.measure import measure_workers
from bench.results import display_on
from segmented import Outbox, Pool, RedisStore

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SMALL: Final = Sizes(rounds=1, singles=20, stored_singles=5, envelopes=2, stored_envelopes=1, latencies=5, kills=0)
pytestmark = pytest.mark.timeout(300)


@pytest.mark.long
def test_the_whole_benchmark_shows_a_figure_of_every_part_and_leaves_nothing(private_valkey: ValkeyServer) -> None:
    console = Console(width=300, record=True)
    before = set(psutil.Process().children())
    results = measure_workers(private_valkey.url, None, display_on(console), SMALL)
    results.show(console)
    said = console.export_text()
    written = results.as_json()
    names = [figure["name"] for figure in written["figures"]]
    assert {kind.name for kind in KINDS} <= set(names)
    assert all(f"idle latency, decided {how}: p99" in names for how in ("at acceptance", "in the worker"))
    assert all(figure["name"] in said for figure in written["figures"])
    assert all(figure["value"] > 0 for figure in written["figures"] if f" / {EMPTY_TASK.name}" in figure["name"])
    assert written["benchmark"] == "workers"
    assert results.is_kept
    assert set(psutil.Process().children()) == before
    with redis.Redis.from_url(private_valkey.url) as client:
        assert not client.info("keyspace")


def test_one_lock_is_compared_with_segments_through_celery_and_leaves_nothing(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms, singles = (Arm(1, 50), Arm(20, 50), Arm(1, 50, commits=True)), SINGLES[:2]
    monkeypatch.setattr("bench.micro.workers.lanes.LANES", arms)
    monkeypatch.setattr("bench.micro.workers.lanes.SINGLES", singles)
    monkeypatch.setattr("bench.micro.workers.lanes.WARM_UP", 16)
    sizes = LaneSizes(rounds=1, seconds=0.05, empty=20, lone=1, singles=20)
    results = measure_lanes(private_valkey.url, None, display_on(Console(quiet=True)), sizes)
    written = results.as_json()
    values = {figure["name"]: figure["value"] for figure in written["figures"]}
    assert all(values[name] > 0 for name in [*(arm.name for arm in arms), *(single.name for single in singles)])
    assert values["one lock, hold 50 ms"] <= 20
    assert values["a lone order, hold 50 ms and a commit: its hold"] >= 50
    assert (written["benchmark"], results.is_kept) == ("celery", True)
    with redis.Redis.from_url(private_valkey.url) as client:
        assert not client.info("keyspace")


def test_the_checker_says_what_is_missing(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        pool = Pool(store, "checked", outbox=Outbox(None))
        pool.open(stock=10, segments=2)
        pool.submit("a")
        pool.submit("b")
        pool.confirm("a")
        assert faults(pool, 2) == (
            "1 of 2 orders were confirmed; 1 unit is reserved still; 1 order waits in the outbox"
        )
        pool.confirm("b")
        assert faults(pool, 2) == ""
