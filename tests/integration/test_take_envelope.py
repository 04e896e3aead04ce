"""Envelopes of submitted orders on real servers: both ways to decide, ungated, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import redis
from sqlalchemy import create_engine, event

from segmented import operations as op
from segmented.errors import InvalidInput, PoolNotGated, StoreUnavailable
from segmented.models import Order
from segmented.models.submitted import BegunOrder, Deciding, Submitted, Swept
from segmented.orders import Gate, connect
from segmented.orders.engine import parse
from segmented.orders.envelopes import EnvelopeReport, TryLater, WorkTerms, take_envelope
from segmented.plans import run_sync
from segmented.stock import Pool
from segmented.stock.outbox import Outbox, dead_plan
from segmented.stores.redis import RedisStore
from tests.dying import Died, DyingStore, Fuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segmented.servers import ValkeyServer

SKU = "mug"
BOTH: list[Deciding] = ["at acceptance", "in the worker"]
SOON = WorkTerms(ttl=0.05, work=0.05)
DEADLINE = 20.0


@dataclass
class Desk:
    """A pool in one mode, with its order database if it has one."""

    pool: Pool
    gate: Gate | None
    url: str

    def take(
        self,
        order_ids: Sequence[str],
        *,
        step: Callable[[BegunOrder], None] | None = None,
        terms: WorkTerms | None = None,
        pool: Pool | None = None,
    ) -> EnvelopeReport:
        return take_envelope(pool or self.pool, order_ids, gate=self.gate, step=step, terms=terms)

    def submit(self, count: int, quantity: int = 1) -> list[str]:
        self.pool.submit_many(Order(f"o{number:03}", quantity) for number in range(count))
        return [f"o{number:03}" for number in range(count)]

    def found(self, order_id: str) -> Submitted:
        return self.pool.store.execute(op.ReadSubmitted(SKU, (order_id,)))[0]

    def states(self, order_ids: Sequence[str]) -> dict[str, int]:
        """Count orders by state."""
        found = [one.state for one in self.pool.store.execute(op.ReadSubmitted(SKU, tuple(order_ids)))]
        return {state: found.count(state) for state in sorted(set(found))}

    def waiting(self) -> int:
        return self.pool.store.execute(op.ReadOutbox(SKU)).waiting

    def check(self, *, confirmed: int, available: int) -> None:
        """Compare the pool with its ledger and with the database."""
        report = self.pool.audit()
        assert report.is_clean, report.drift
        assert (report.state.confirmed, report.state.reserved, report.state.available) == (confirmed, 0, available)
        if self.gate is not None:
            assert self.gate.confirmed_units(SKU) == self.gate.totals(SKU).sold == confirmed


@pytest.fixture(params=BOTH)
def decides(request: pytest.FixtureRequest) -> Deciding:
    found: Deciding = request.param
    return found


def opened(
    store: RedisStore, decides: Deciding, gate: Gate | None, *, stock: int = 200, segments: int = 4, hold: float = 600.0
) -> Pool:
    pool = Pool(store, SKU, ttl=min(hold, 10.0), hold=hold, outbox=Outbox(decides=decides))
    pool.open(stock=stock, segments=segments, gated=gate is not None)
    if gate is not None:
        gate.open(SKU, [stock // segments] * segments)
    return pool


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(valkey.url) as store:
        yield store


@pytest.fixture(params=["plain", "sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an order database; empty for none."""
    if request.param == "plain":
        return ""
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "sqlite_url")
    return found


@pytest.fixture
def desk(store: RedisStore, decides: Deciding, database_url: str, open_gate: Callable[..., Gate]) -> Desk:
    gate = open_gate(database_url) if database_url else None
    return Desk(opened(store, decides, gate), gate, database_url)


@pytest.fixture
def gated_desk(store: RedisStore, decides: Deciding, order_database: str, open_gate: Callable[..., Gate]) -> Desk:
    gate = open_gate(order_database, timeout=0.5)
    return Desk(opened(store, decides, gate), gate, order_database)


def no_address(order: BegunOrder) -> None:
    """Fail for one order of each envelope."""
    if order.order.order_id == "o042":
        message = "no\tsuch address \udcff"
        raise ValueError(message)


def let_it_be_due(desk: Desk) -> tuple[str, ...]:
    """Name what a sweep would publish, once something is due."""
    until = monotonic() + DEADLINE
    while monotonic() < until:
        found = desk.pool.store.execute(op.SweepOutbox(SKU, 1_000, None, 1, 1, 600_000, 5))
        assert isinstance(found, Swept)
        if found.due:
            return tuple(order_id for order_id, _ in found.due)
        threading.Event().wait(0.01)
    message = "nothing became due"
    raise AssertionError(message)


# --- what it does ---


def test_an_envelope_of_a_hundred_is_decided_and_comes_again_as_a_repeat(desk: Desk) -> None:
    ids = desk.submit(100)
    report = desk.take(ids)
    assert [one.order_id for one in report.settled] == ids
    assert {one.state for one in report.settled} == {"confirmed"}
    again = desk.take(ids)
    assert sorted(one.order_id for one in again.settled) == ids
    assert {(one.state, one.replay) for one in again.settled} == {("confirmed", True)}
    assert (report.put_off, report.in_hand, report.alone, report.dead, report.unknown) == ({}, [], [], [], [])
    assert desk.waiting() == 0
    desk.check(confirmed=100, available=100)


def test_a_step_is_called_once_with_each_order_before_it_is_decided(desk: Desk) -> None:
    seen: list[tuple[str, int, str]] = []

    def step(order: BegunOrder) -> None:
        seen.append((order.order.order_id, order.begun, desk.found(order.order.order_id).state))

    ids = desk.submit(10)
    desk.take(ids, step=step)
    assert seen == [(order_id, 1, "reserved") for order_id in ids]
    desk.check(confirmed=10, available=190)


def test_more_than_there_is_sells_out_exactly(desk: Desk) -> None:
    ids = desk.submit(100, quantity=3)
    for first in range(0, 100, 20):
        desk.take(ids[first : first + 20])
    sold = desk.states(ids).get("confirmed")
    assert sold == 66
    assert desk.waiting() == 0
    desk.check(confirmed=198, available=2)


def test_ids_that_nobody_submitted_are_told(desk: Desk) -> None:
    ids = desk.submit(1)
    report = desk.take([*ids, "nobody"])
    assert report.unknown == ["nobody"]
    assert len(report.settled) == 1


# --- one bad order ---


def test_an_order_whose_step_raises_is_put_off_and_the_others_are_decided(desk: Desk) -> None:
    ids = desk.submit(100)
    report = desk.take(ids, step=no_address)
    assert len(report.settled) == 99
    assert report.put_off == {"o042": "ValueError: no\tsuch address \udcff"}
    found = desk.found("o042")
    assert (found.state, found.begun, found.reason) == ("reserved", 1, "ValueError: no such address \\udcff")
    assert desk.states(ids) == {"confirmed": 99, "reserved": 1}
    assert desk.take(["o042"]).settled[0].state == "confirmed"
    desk.check(confirmed=100, available=100)


def test_an_order_whose_step_always_raises_is_dead_after_five_times_and_sold_when_it_is_replayed(desk: Desk) -> None:
    desk.submit(50)
    for _ in range(5):
        assert "o042" in desk.take(["o042"], step=no_address).put_off
    assert desk.take(["o042"], step=no_address).dead == ["o042"]
    assert desk.found("o042").state == "dead"
    desk.pool.store.execute(op.ReplayDead(SKU, ("o042",)))
    assert desk.take(["o042"]).settled[0].state == "confirmed"


@pytest.mark.parametrize("times", [7])
def test_a_step_that_says_later_does_not_count(desk: Desk, times: int) -> None:
    def later(_: BegunOrder) -> None:
        message = "the bank is closed"
        raise TryLater(message, seconds=0.001)

    desk.submit(2)
    for _ in range(times):
        assert desk.take(["o000"], step=later).put_off == {"o000": "the bank is closed"}
    found = desk.found("o000")
    assert (found.state, found.begun, found.reason) == ("reserved", 0, "the bank is closed")
    assert let_it_be_due(desk) == ("o000",)
    assert desk.take(["o000", "o001"]).settled[0].state == "confirmed"


def test_a_time_to_try_later_that_is_none_is_the_failure_of_its_order_alone(desk: Desk) -> None:
    def later(order: BegunOrder) -> None:
        if order.order.order_id == "o001":
            message = "tomorrow"
            raise TryLater(message, seconds=-1.0)

    report = desk.take(desk.submit(3), step=later)
    assert len(report.settled) == 2
    assert report.put_off["o001"].startswith("InvalidInput: seconds of -1.0 s is not a lease")


def test_an_order_that_kills_its_workers_is_tried_alone_and_then_buried(desk: Desk) -> None:
    ids = desk.submit(30)
    killed: list[int] = []

    def poison(order: BegunOrder) -> None:
        if order.order.order_id == "o007":
            killed.append(order.begun)
            raise Died

    def deliver(envelope: Sequence[str]) -> EnvelopeReport | None:
        try:
            return desk.take(envelope, step=poison, terms=SOON)
        except Died:
            threading.Event().wait(0.06)
            return None

    assert deliver(ids) is None
    assert deliver(ids) == EnvelopeReport(alone=ids)
    for first in (0, 10, 20):
        deliver(ids[first : first + 10])
    assert desk.states(ids) == {"confirmed": 20, "reserved": 10}
    assert deliver(ids[:10]) == EnvelopeReport(alone=ids[:10])
    for order_id in ids[:10]:
        deliver([order_id])
    assert desk.states(ids) == {"confirmed": 29, "reserved": 1}
    while desk.found("o007").state != "dead":
        deliver(["o007"])
    assert killed == [1, 2, 3, 4, 5]
    assert [one.order_id for one in run_sync(dead_plan(SKU), desk.pool.store)] == ["o007"]


def test_an_order_that_the_database_has_with_other_content_is_cancelled_and_the_others_are_sold(
    gated_desk: Desk,
) -> None:
    gate = gated_desk.gate
    assert gate is not None
    ids = gated_desk.submit(100)
    gate.confirm(order_id="o042", sku=SKU, segment=0, quantity=2, epoch=1)
    report = gated_desk.take(ids)
    assert len(report.settled) == 100
    assert gated_desk.states(ids) == {"cancelled": 1, "confirmed": 99}
    assert gated_desk.found("o042").state == "cancelled"
    assert gated_desk.waiting() == 0
    assert gated_desk.pool.audit().is_clean
    assert gate.confirmed_units(SKU) == 101


def test_an_order_that_the_database_has_voided_is_cancelled_and_the_others_are_sold(gated_desk: Desk) -> None:
    gate = gated_desk.gate
    assert gate is not None
    ids = gated_desk.submit(100)
    gate.void(order_id="o042", sku=SKU, quantity=1)
    report = gated_desk.take(ids)
    assert [one.state for one in report.settled if one.order_id == "o042"] == ["cancelled"]
    assert gated_desk.states(ids) == {"cancelled": 1, "confirmed": 99}
    gated_desk.check(confirmed=99, available=101)


def test_an_order_that_the_database_has_confirmed_before_is_confirmed(gated_desk: Desk) -> None:
    gate = gated_desk.gate
    assert gate is not None
    ids = gated_desk.submit(3)
    gate.confirm(order_id="o001", sku=SKU, segment=0, quantity=1, epoch=1)
    assert {one.state for one in gated_desk.take(ids).settled} == {"confirmed"}
    gated_desk.check(confirmed=3, available=197)


def test_a_worker_whom_a_later_token_overtook_in_the_database_tries_later_uncounted(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database)
    desk = Desk(opened(store, "in the worker", gate, segments=1), gate, order_database)
    ids = desk.submit(2)
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=1, epoch=1, fence=2**52)
    report = desk.take(ids)
    assert report.put_off == dict.fromkeys(ids, "a later holder of its segment reached the database first")
    assert (desk.found("o000").begun, desk.found("o000").state) == (0, "reserved")


def test_where_the_database_has_fewer_units_the_order_is_put_off_with_the_reason_and_counted(gated_desk: Desk) -> None:
    gate = gated_desk.gate
    assert gate is not None
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=49, epoch=1)
    for segment in (1, 2, 3):
        gate.confirm(order_id=f"other {segment}", sku=SKU, segment=segment, quantity=50, epoch=1)
    report = gated_desk.take(gated_desk.submit(2))
    assert len(report.settled) == 1
    (reason,) = report.put_off.values()
    assert reason.startswith("PoolDiverged: ")
    assert reason.endswith("the pool granted units, but 200 of 200 are sold")
    assert gated_desk.found(*report.put_off).begun == 1


# --- one worker at a time ---


def test_a_step_that_lasts_longer_than_the_workers_time_keeps_its_orders(desk: Desk) -> None:
    ids = desk.submit(3)
    told: list[EnvelopeReport] = []

    def step(order: BegunOrder) -> None:
        if order.order.order_id == "o000":
            threading.Event().wait(0.6)  # four times the worker's time
            told.append(desk.take(ids, step=lambda _: None))

    report = desk.take(ids, step=step, terms=WorkTerms(ttl=0.15, work=0.15))
    assert told == [EnvelopeReport(in_hand=ids)]
    assert [one.replay for one in report.settled] == [False] * 3
    assert desk.found("o000").begun == 0
    desk.check(confirmed=3, available=197)


def test_two_workers_with_the_same_envelope_at_once_have_one_effect(desk: Desk) -> None:
    ids = desk.submit(100)
    calls: list[str] = []
    start = threading.Barrier(2)

    def work() -> EnvelopeReport:
        start.wait(DEADLINE)
        return desk.take(ids, step=lambda order: calls.append(order.order.order_id))

    with ThreadPoolExecutor(2) as workers:
        reports = [future.result(DEADLINE) for future in [workers.submit(work) for _ in range(2)]]
    assert sorted(calls) == ids
    fresh = [one.order_id for report in reports for one in report.settled if not one.replay]
    assert sorted(fresh) == ids
    assert desk.waiting() == 0
    desk.check(confirmed=100, available=100)


def test_a_worker_may_die_at_any_step_and_the_next_one_finishes(desk: Desk) -> None:
    steps = 0
    for number in range(1, 40):
        ids = [f"d{number}-{index}" for index in range(2)]
        desk.pool.submit_many(Order(order_id, 1) for order_id in ids)
        fuse = Fuse()
        dying = Pool(DyingStore(desk.pool.store, fuse), SKU, outbox=desk.pool.outbox)
        dying.is_gated()
        fuse.steps = fuse.burnt + number
        try:
            desk.take(ids, terms=SOON, pool=dying)
        except Died:
            threading.Event().wait(0.06)
        else:
            steps = number
        assert [one.state for one in desk.take(ids).settled] == ["confirmed"] * 2
        if steps:
            break
    assert steps > 2
    assert desk.waiting() == 0
    assert desk.pool.audit().is_clean


# --- servers that are away ---


@contextmanager
def locked_out(url: str) -> Iterator[None]:
    """Keep everybody from the order database's tables."""
    engine = create_engine(parse(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("LOCK TABLE segmented_segments, segmented_orders IN ACCESS EXCLUSIVE MODE")
        else:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
        yield
        connection.exec_driver_sql("ROLLBACK")
    engine.dispose()


def test_while_the_database_is_away_orders_are_put_off_uncounted_and_finished_later(gated_desk: Desk) -> None:
    ids = gated_desk.submit(20)
    with locked_out(gated_desk.url):
        report = gated_desk.take(ids)
        assert list(report.put_off) == ids
        assert all(reason.startswith("DatabaseUnavailable: ") for reason in report.put_off.values())
    assert gated_desk.found("o000").begun == 0
    assert gated_desk.states(ids) == {"reserved": 20}
    assert [one.state for one in gated_desk.take(ids).settled] == ["confirmed"] * 20
    gated_desk.check(confirmed=20, available=180)


def test_while_no_segment_is_free_orders_are_put_off_uncounted(store: RedisStore) -> None:
    pool = opened(store, "in the worker", None, segments=1)
    desk = Desk(pool, None, "")
    grant = pool.grant("other")
    ids = desk.submit(2)
    report = desk.take(ids, terms=WorkTerms(segment_wait=0.02))
    assert report.put_off == dict.fromkeys(ids, "no segment was free")
    assert desk.found("o000").begun == 0
    pool.confirm("other", holder_id=grant.holder_id)  # type: ignore[union-attr]  # the segment was free
    assert len(desk.take(ids).settled) == 2


def test_a_worker_that_waits_gets_the_segment_as_soon_as_it_is_free(store: RedisStore) -> None:
    pool = opened(store, "in the worker", None, segments=1)
    desk = Desk(pool, None, "")
    grant = pool.grant("other")
    ids = desk.submit(2)
    with ThreadPoolExecutor(1) as workers:
        taking = workers.submit(desk.take, ids, terms=WorkTerms(segment_wait=DEADLINE))
        while not taking.running():
            threading.Event().wait(0.001)
        pool.confirm("other", holder_id=grant.holder_id)  # type: ignore[union-attr]  # the segment was free
        assert len(taking.result(DEADLINE).settled) == 2


def test_a_store_that_is_away_raises(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        pool = opened(store, "at acceptance", None)
        ids = Desk(pool, None, "").submit(2)
        pool.is_gated()
        private_valkey.kill()
        with pytest.raises(StoreUnavailable):
            take_envelope(pool, ids)


# --- what cannot be ---


def test_a_gate_over_a_pool_without_one_is_refused(store: RedisStore, sqlite_url: str) -> None:
    desk = Desk(opened(store, "at acceptance", None), None, "")
    ids = desk.submit(1)
    with Gate(connect(sqlite_url)) as gate, pytest.raises(PoolNotGated):
        take_envelope(desk.pool, ids, gate=gate)
    assert desk.found("o000").begun == 0


def test_a_gated_pool_without_its_gate_is_put_off_uncounted(gated_desk: Desk) -> None:
    ids = gated_desk.submit(2)
    report = take_envelope(gated_desk.pool, ids)
    assert report.put_off == dict.fromkeys(ids, "the pool is gated, and this worker has no order database")
    assert gated_desk.found("o000").begun == 0


@pytest.mark.parametrize(
    ("order_ids", "sentence"),
    [
        ([], "an envelope has 1 to 1,000 orders, not 0"),
        ([f"o{number}" for number in range(1_001)], "an envelope has 1 to 1,000 orders, not 1,001"),
        (["a", ""], "order id '' must have 1 to 256 bytes of UTF-8"),
        (["a", 7], "order id 7 is not text"),
        ("abc", "'abc' is one order id, where those of an envelope belong: give them in a list"),
    ],
    ids=["none", "too many", "empty", "a number", "one text"],
)
def test_bad_ids_are_refused_in_one_sentence(store: RedisStore, order_ids: list[str], sentence: str) -> None:
    pool = opened(store, "at acceptance", None)
    with pytest.raises(InvalidInput) as refused:
        take_envelope(pool, order_ids)
    assert str(refused.value) == sentence


# --- what it costs ---


def scripts_of(valkey: ValkeyServer, work: Callable[[], object]) -> int:
    """Count the scripts that some work runs."""
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        client.config_resetstat()
        work()
        stats = client.info("commandstats")
    assert "cmdstat_eval" not in stats
    return int(stats["cmdstat_evalsha"]["calls"])


def test_a_hundred_orders_cost_a_bounded_number_of_scripts(
    valkey: ValkeyServer, store: RedisStore, decides: Deciding
) -> None:
    desk = Desk(opened(store, decides, None), None, "")
    desk.pool.submit("warm up")
    desk.take(["warm up"])
    assert scripts_of(valkey, lambda: desk.submit(100)) == 1
    ids = [f"o{number:03}" for number in range(100)]
    assert scripts_of(valkey, lambda: desk.take(ids)) == (1 if decides == "at acceptance" else 3)
    assert desk.states(ids) == {"confirmed": 100}


def test_a_hundred_gated_orders_cost_two_scripts_and_one_transaction(valkey: ValkeyServer, gated_desk: Desk) -> None:
    gate = gated_desk.gate
    assert gate is not None
    gated_desk.pool.submit("warm up")
    gated_desk.take(["warm up"])
    ids = gated_desk.submit(100)
    commits: list[object] = []
    event.listen(gate._engine, "commit", commits.append)  # noqa: SLF001  # to count them
    assert scripts_of(valkey, lambda: gated_desk.take(ids)) == 2
    assert len(commits) == 1
    gated_desk.check(confirmed=101, available=99)
