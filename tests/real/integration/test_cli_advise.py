"""`segmented advise --measure` against a real server: it finds its numbers, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import time
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from segmented.advise import PastHold, Workload, measure, past_hold
from segmented.errors import InvalidInput, StoreError
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore
from tests.support.command_line import on_a_terminal, ran, ran_apart, started
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.protocol import Operation
    from segmented.servers import ValkeyServer
    from tests.support.workers.envelope_till import EnvelopeSetup

AnswerT = TypeVar("AnswerT")

SECONDS: Final = 120.0
STEP_SECONDS: Final = 0.005
HOLD: Final = "60s"
"""Longer than any round trip, also on a machine that stands still now and then: so segments pay in any case."""
SALE: Final = ("advise", "--workers", "32", "--stock", "10000", "--quantity", "1-5")


def test_a_measurement_fills_in_the_round_trip_and_the_servers_time(valkey: ValkeyServer) -> None:
    done = ran_apart(*SALE, "--hold", HOLD, "--measure", "--for", "0.3", "--json", "-", url=valkey.url)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    measured = found["measured"]
    filled_in = ("round_trip", "server_time", "client_time")
    assert [found["workload"][name] for name in filled_in] == [measured[name] for name in filled_in]
    assert 0 < measured["round_trip"] < 60  # seconds, not milliseconds
    assert 0 < measured["server_time"] < 60
    assert 0 < measured["client_time"] < 60
    assert measured["orders"] >= 1
    assert found["segment"]
    with RedisStore.from_url(valkey.url) as store:
        assert store.client.keys("*") == []


def test_on_a_terminal_the_hold_is_asked_for(valkey: ValkeyServer) -> None:
    code, shown = on_a_terminal(*SALE, "--measure", "--for", "0.1", url=valkey.url, typed=f"n\n{HOLD}\n")
    assert code == 0
    assert "May two orders do the slow work at the same time" in shown
    assert "How long is the slow work of one order under its lock, such as 20ms" in shown
    assert "█" in shown
    assert "Yes: split the stock into" in shown
    assert "Measured with" in shown


@pytest.fixture
def sold(valkey: ValkeyServer) -> Iterator[Pool]:
    """A pool in which two orders were granted and confirmed, one was reserved and confirmed, and one is not done."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "concert")
        pool.open(stock=100, segments=4)
        for order_id in ("a", "b"):
            with pool.grant(order_id, timeout=0):
                pass
        pool.reserve("c")
        pool.confirm("c")
        pool.grant("d", timeout=0)
        yield pool


def test_the_hold_of_a_sale_is_read_from_its_ledger(sold: Pool, valkey: ValkeyServer) -> None:
    times = {(entry.order_id, entry.kind): entry.at_us for entry in sold.read_ledger()}
    spans = [times[order_id, "confirmed"] - times[order_id, "reserved"] for order_id in ("a", "b")]
    done = ran(*SALE, "--hold-of", "concert", "--round-trip", "1us", "--json", "-", url=valkey.url)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    spread = abs(spans[0] - spans[1]) / sum(spans)
    assert found["past"] == {
        "locked": pytest.approx(sum(spans) / 2e6),
        "orders": 2,
        "holds": 2,
        "spread": pytest.approx(spread),
    }
    assert found["workload"]["hold"] == pytest.approx(sum(spans) / 2e6 - 1e-6)
    said = ran(*SALE, "--hold-of", "concert", url=valkey.url).stdout
    assert "- In that pool 2 orders held a segment for " in said


def test_an_order_that_was_granted_again_counts_from_then(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "concert", ttl=0.01)
        pool.open(stock=100, segments=4)
        pool.grant("a", timeout=0)
        second = pool.grant("a", timeout=SECONDS)  # once the first lease has lapsed
        assert isinstance(second, Grant)
        second.confirm()
        times = {entry.kind: entry.at_us for entry in pool.read_ledger()}
        assert past_hold(store, "concert").locked == pytest.approx((times["confirmed"] - times["granted"]) / 1e6)


def test_an_envelope_counts_as_one_hold_of_a_batch(setup: EnvelopeSetup, valkey: ValkeyServer) -> None:
    setup.take(setup.submit(6), step=lambda _: time.sleep(STEP_SECONDS))
    times = {entry.kind: entry.at_us for entry in setup.pool.read_ledger()}
    held = (times["confirmed"] - times["reserved"]) / 1e6
    with RedisStore.from_url(valkey.url) as store:
        assert past_hold(store, setup.pool.sku) == PastHold(locked=held, orders=6, holds=1, spread=0.0)
    done = ran(*SALE, "--hold-of", setup.pool.sku, "--round-trip", "1us", "--json", "-", url=valkey.url)
    workload = json.loads(done.stdout)["workload"]
    assert (workload["batch"], workload["hold_spread"]) == (6, None)
    beside = Workload(hold=0, workers=1, stock=6, batch=6, round_trip=1e-6).locked
    assert held > 6 * STEP_SECONDS
    assert workload["hold"] == pytest.approx(held - beside)


def test_a_pool_without_grants_tells_no_hold(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        Pool(store, "concert").open(stock=100, segments=4)
    done = ran(*SALE, "--hold-of", "concert", url=valkey.url)
    said = "segmented: pool 'concert' has no order that was granted and confirmed lately, so it does not tell a hold\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


class Interrupted(RedisStore):
    """A store whose user presses Ctrl-C at the tenth operation."""

    sent = 0

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.sent += 1
        if self.sent == 10:
            raise KeyboardInterrupt
        return super().execute(operation, deadline=deadline)


def test_a_measurement_that_is_interrupted_leaves_nothing_behind(valkey: ValkeyServer) -> None:
    with Interrupted.from_url(valkey.url) as store:
        with pytest.raises(KeyboardInterrupt):
            measure(store, seconds=1)
        assert store.client.keys("*") == []


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_measuring_command_that_is_told_to_end_leaves_nothing_behind(
    valkey: ValkeyServer, number: signal.Signals, exit_code: int
) -> None:
    with (
        RedisStore.from_url(valkey.url) as store,
        started(*SALE, "--hold", "20ms", "--measure", "--for", "60", url=valkey.url) as run,
    ):
        try:
            until(lambda: len(store.client.keys("*advise-*")) >= 4, seconds=SECONDS)
            os.kill(run.pid, number)
            shown, wrong = run.communicate(timeout=SECONDS)
        finally:
            run.kill()
        assert (run.returncode, shown, wrong) == (exit_code, "", "segmented: interrupted\n")
        assert store.client.keys("*") == []


def test_a_measurement_is_bounded(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        for seconds in (0, -1, 61, float("nan"), True):
            with pytest.raises(InvalidInput):
                measure(store, seconds=seconds)


def test_a_server_that_refuses_is_told(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        store.client.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreError):
                measure(store, seconds=0.1)
        finally:
            store.client.config_set("maxmemory", "0")
        assert store.client.keys("*") == []
