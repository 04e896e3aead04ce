"""Envelopes in a worker's hands."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Engine, create_engine, event

from segmented import MemoryStore, protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, PoolFrozen
from segmented.models import Order
from segmented.models.submitted import BegunOrder, Deciding, Swept
from segmented.orders import Gate, rebuild
from segmented.orders.envelopes import Decline, EnvelopeReport, TryLater, WorkTerms, take_envelope
from segmented.orders.verifying import compare_once
from segmented.plans import run_sync
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stock.outbox import dead_plan
from segmented.stores.redis import RedisStore
from tests.support.dying import Died, DyingStore, StepCounter
from tests.support.workers.envelope_till import BOTH, SKU, EnvelopeSetup, opened

pytestmark = pytest.mark.usefixtures("patient_attempts")


def no_address(order: BegunOrder) -> None:
    """Fail for one order of each envelope."""
    if order.order.order_id == "o042":
        raise ValueError("no\tsuch address \udcff")


# --- what it does ---


def test_an_id_that_comes_twice_in_an_envelope_is_settled_once(setup: EnvelopeSetup) -> None:
    (first,) = setup.submit(1)
    assert [one.order_id for one in setup.take([first, first]).settled] == [first]
    setup.check(confirmed=1, available=199)


# --- one bad order ---


def test_an_order_whose_step_raises_is_put_off_and_the_others_are_decided(setup: EnvelopeSetup) -> None:
    ids = setup.submit(100)
    report = setup.take(ids, step=no_address)
    assert len(report.settled) == 99
    assert report.put_off == {"o042": "ValueError: no such address ?"}
    found = setup.found("o042")
    assert (found.state, found.begun, found.reason) == ("reserved", 1, "ValueError: no such address ?")
    assert setup.states(ids) == {"confirmed": 99, "reserved": 1}
    assert setup.take(["o042"]).settled[0].state == "confirmed"
    setup.check(confirmed=100, available=100)


def test_an_order_whose_step_always_raises_is_dead_after_5_tries_and_sold_on_replay(setup: EnvelopeSetup) -> None:
    setup.submit(50)
    for _ in range(5):
        assert "o042" in setup.take(["o042"], step=no_address).put_off
    assert setup.take(["o042"], step=no_address).dead == ["o042"]
    assert setup.found("o042").state == "dead"
    setup.pool.store.execute(op.ReplayDead(SKU, ("o042",)))
    assert setup.take(["o042"]).settled[0].state == "confirmed"


def test_an_order_that_its_step_declines_is_void_and_its_units_are_free(setup: EnvelopeSetup) -> None:
    def pay(order: BegunOrder) -> None:
        if order.order.order_id == "o001":
            raise Decline("card refused")

    ids = setup.submit(3)
    report = setup.take(ids, step=pay)
    assert report.declined == {"o001": "card refused"}
    assert {one.order_id: one.state for one in report.settled} == {
        "o000": "confirmed",
        "o001": "cancelled",
        "o002": "confirmed",
    }
    assert (report.put_off, setup.waiting(), setup.take(["o001"]).settled[0].state) == ({}, 0, "cancelled")
    setup.check(confirmed=2, available=198)


def test_a_decline_by_a_worker_that_has_lost_the_order_leaves_it_to_the_other(
    setup: EnvelopeSetup, clock: ManualClock
) -> None:
    def outlasted(_: BegunOrder) -> None:
        clock.advance(120)
        assert [one.state for one in setup.take(["o000"]).settled] == ["confirmed"]
        raise Decline("card refused")

    setup.submit(1)
    report = setup.take(["o000"], step=outlasted)
    assert (report.settled, report.declined, report.in_hand) == ([], {}, ["o000"])
    setup.check(confirmed=1, available=199)


def test_a_step_that_says_later_does_not_count(setup: EnvelopeSetup, clock: ManualClock) -> None:
    def later(_: BegunOrder) -> None:
        message = "the bank is closed"
        raise TryLater(message, seconds=1)

    setup.submit(2)
    for _ in range(7):
        assert setup.take(["o000"], step=later).put_off == {"o000": "the bank is closed"}
    found = setup.found("o000")
    assert (found.state, found.begun, found.reason) == ("reserved", 0, "the bank is closed")
    clock.advance(2)
    swept = setup.pool.store.execute(op.SweepOutbox(SKU, 1_000, None, 1, 1, 600_000, 5))
    assert isinstance(swept, Swept)
    assert [order_id for order_id, _ in swept.due] == ["o000"]
    assert setup.take(["o000", "o001"]).settled[0].state == "confirmed"


def test_an_order_that_kills_its_workers_is_tried_alone_and_then_buried(
    setup: EnvelopeSetup, clock: ManualClock
) -> None:
    ids = setup.submit(30)
    killed: list[int] = []

    def poison(order: BegunOrder) -> None:
        if order.order.order_id == "o007":
            killed.append(order.begun)
            raise Died

    def deliver(envelope: Sequence[str]) -> EnvelopeReport | None:
        try:
            return setup.take(envelope, step=poison)
        except Died:
            clock.advance(1_000)
            return None

    assert deliver(ids) is None
    assert deliver(ids) == EnvelopeReport(alone=ids)
    for first in (0, 10, 20):
        deliver(ids[first : first + 10])
    assert setup.states(ids) == {"confirmed": 20, "reserved": 10}
    assert deliver(ids[:10]) == EnvelopeReport(alone=ids[:10])
    for order_id in ids[:10]:
        deliver([order_id])
    assert setup.states(ids) == {"confirmed": 29, "reserved": 1}
    while setup.found("o007").state != "dead":
        deliver(["o007"])
    assert killed == [1, 2, 3, 4, 5]
    assert [one.order_id for one in run_sync(dead_plan(SKU), setup.pool.store)] == ["o007"]


def test_a_worker_whom_a_later_token_overtook_in_the_database_tries_later_uncounted(
    memory: MemoryStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database)
    setup = EnvelopeSetup(opened(memory, "in the worker", gate, segments=1), gate)
    ids = setup.submit(2)
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=1, epoch=1, fence=2**52)
    report = setup.take(ids)
    assert report.put_off == dict.fromkeys(ids, "a later holder of its segment reached the database first")
    assert (setup.found("o000").begun, setup.found("o000").state) == (0, "reserved")


def test_with_fewer_units_in_the_database_the_pool_freezes_until_a_rebuild_decides(gated_till: EnvelopeSetup) -> None:
    gate = gated_till.gate
    assert gate is not None
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=49, epoch=1)
    for segment in (1, 2, 3):
        gate.confirm(order_id=f"other {segment}", sku=SKU, segment=segment, quantity=50, epoch=1)
    ids = gated_till.submit(2)
    reason = gated_till.take(ids).put_off[ids[-1]]
    assert reason.startswith("PoolFrozen: pool 'mug' is frozen"), reason
    with pytest.raises(PoolFrozen):
        gated_till.take(ids)
    assert gate.totals(SKU).sold == 200
    rebuild(gated_till.pool, gate)
    report = gated_till.take(ids)
    assert sorted(one.state for one in report.settled) == ["cancelled", "confirmed"]
    gated_till.check(confirmed=200, available=0)


UNRENEWED = WorkTerms(ttl=300, work=300)
"""So long that no worker asks for more time in the midst of a test."""


def test_a_worker_may_die_at_any_step_and_the_next_one_finishes(setup: EnvelopeSetup, clock: ManualClock) -> None:
    steps = 0
    for number in range(1, 40):
        ids = [f"d{number}-{index}" for index in range(2)]
        setup.pool.submit_many(Order(order_id, 1) for order_id in ids)
        counter = StepCounter()
        dying = Pool(DyingStore(setup.pool.store, counter), SKU, outbox=setup.pool.outbox)
        dying.is_gated()
        counter.steps = counter.counted + number
        try:
            setup.take(ids, pool=dying)
        except Died:
            clock.advance(1_000)
            assert len(setup.take(ids).settled) == 2
        else:
            steps = number
        assert [one.state for one in setup.take(ids).settled] == ["confirmed"] * 2
        if steps:
            break
    assert steps > 2
    assert setup.waiting() == 0
    assert setup.pool.audit().is_clean


def test_a_worker_without_a_step_leaves_alone_what_anothers_step_works_on(memory: MemoryStore) -> None:
    setup = EnvelopeSetup(opened(memory, "at acceptance", None), None)
    ids = setup.submit(2)
    told: list[EnvelopeReport] = []

    def step(_: BegunOrder) -> None:
        told.append(setup.take(ids))
        assert setup.states(ids) == {"reserved": 2}

    report = setup.take(ids, step=step)
    assert told == [EnvelopeReport(in_hand=ids)] * 2
    assert [one.replay for one in report.settled] == [False] * 2
    setup.check(confirmed=2, available=198)


# --- servers that are away ---


@contextmanager
def locked_out(url: str) -> Iterator[None]:
    """Keep everybody from the order database."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        yield
        connection.exec_driver_sql("ROLLBACK")
    engine.dispose()


@pytest.mark.parametrize("is_compared", [True, False])
def test_while_the_database_is_away_orders_are_put_off_uncounted_and_finished_later(
    gated_till: EnvelopeSetup, order_database: str, open_gate: Callable[..., Gate], *, is_compared: bool
) -> None:
    hurried = open_gate(order_database, timeout=0.02)
    ids = gated_till.submit(20)
    if is_compared:
        compare_once(gated_till.pool, hurried)
    with locked_out(order_database):
        report = take_envelope(gated_till.pool, ids, gate=hurried)
        assert list(report.put_off) == ids
        assert all(reason.startswith("DatabaseUnavailable: ") for reason in report.put_off.values())
    assert gated_till.found("o000").begun == 0
    if is_compared:  # else a process takes no units as long as the database cannot be read
        assert gated_till.states(ids) == {"reserved": 20}
    assert [one.state for one in gated_till.take(ids).settled] == ["confirmed"] * 20
    gated_till.check(confirmed=20, available=180)


def test_while_no_segment_is_free_orders_are_put_off_uncounted(memory: MemoryStore) -> None:
    pool = opened(memory, "in the worker", None, segments=1)
    setup = EnvelopeSetup(pool, None)
    grant = pool.grant("other")
    ids = setup.submit(2)
    report = setup.take(ids, terms=WorkTerms(segment_timeout=0))
    assert report.put_off == dict.fromkeys(ids, "no segment was free")
    assert setup.found("o000").begun == 0
    pool.confirm("other", holder_id=grant.holder_id)  # type: ignore[union-attr]  # the segment was free
    assert len(setup.take(ids).settled) == 2


# --- what cannot be ---


def test_an_order_that_failed_before_is_kept_by_a_worker_without_its_database(gated_till: EnvelopeSetup) -> None:
    def fail(_: BegunOrder) -> None:
        raise ValueError("no address")

    ids = gated_till.submit(1)
    gated_till.take(ids, step=fail)
    before = gated_till.found(ids[0])
    take_envelope(gated_till.pool, ids, terms=WorkTerms(begun_max=1))
    after = gated_till.found(ids[0])
    assert (before.begun, after.begun, after.state) == (1, 1, before.state)
    assert gated_till.waiting() == 1


@pytest.mark.parametrize(
    ("order_ids", "sentence"),
    [
        ([], "an envelope has 1 to 1,000 orders, not 0"),
        ([f"o{number}" for number in range(1_001)], "an envelope has 1 to 1,000 orders, not 1,001"),
        (["a", ""], "order id '' must have 1 to 256 bytes of UTF-8"),
        (["a", 7], "order id 7 is not text"),
        ("abc", "'abc' is a single order id; give an envelope's order ids as a list"),
    ],
    ids=["none", "too many", "empty", "a number", "one text"],
)
def test_bad_ids_are_refused_in_one_sentence(memory: MemoryStore, order_ids: list[str], sentence: str) -> None:
    pool = opened(memory, "at acceptance", None)
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


@pytest.mark.parametrize("decides", BOTH)
def test_a_hundred_orders_cost_a_bounded_number_of_scripts(
    valkey: ValkeyServer, store: RedisStore, decides: Deciding
) -> None:
    setup = EnvelopeSetup(opened(store, decides, None), None)
    setup.pool.submit("warm up")
    setup.take(["warm up"])
    assert scripts_of(valkey, lambda: setup.submit(100)) == 1
    ids = [f"o{number:03}" for number in range(100)]
    assert scripts_of(valkey, lambda: setup.take(ids, terms=UNRENEWED)) == (1 if decides == "at acceptance" else 2)
    assert setup.states(ids) == {"confirmed": 100}


def test_a_hundred_gated_orders_cost_two_scripts_and_one_transaction(
    valkey: ValkeyServer, store: RedisStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database)
    gated_till = EnvelopeSetup(opened(store, "in the worker", gate), gate)
    gated_till.pool.submit("warm up")
    gated_till.take(["warm up"])
    ids = gated_till.submit(100)
    commits: list[object] = []

    def note(connection: object) -> None:
        commits.append(connection)

    event.listen(Engine, "commit", note)
    assert scripts_of(valkey, lambda: gated_till.take(ids, terms=UNRENEWED)) == 2
    event.remove(Engine, "commit", note)
    assert len(commits) == 1
    gated_till.check(confirmed=101, available=99)
