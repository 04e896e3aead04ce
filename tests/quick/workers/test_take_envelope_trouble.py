"""Envelopes and trouble: workers that die, servers that are away, bad input; and what an envelope costs."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

import pytest
import redis
from sqlalchemy import Engine, create_engine, event

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolNotGated, StoreUnavailable
from segmented.models import Order
from segmented.orders import Gate, connect
from segmented.orders.envelope_report import EnvelopeReport
from segmented.orders.envelopes import take_envelope
from segmented.orders.verifying import compare_once
from segmented.orders.work_terms import WorkTerms
from segmented.stock import Pool
from tests.support.dying import AnswerT, Died, DyingStore, StepCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented import MemoryStore
    from segmented.clock import ManualClock
    from segmented.models.submitted import BegunOrder, Deciding
    from segmented.plans.drivers import Store
    from segmented.protocol import Operation
    from segmented.servers import ValkeyServer
    from segmented.stores.redis import RedisStore

from tests.support.workers.envelope_till import BOTH, SKU, EnvelopeSetup, opened

pytestmark = pytest.mark.usefixtures("patient_attempts")

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


class LosingStore(DyingStore):
    """A real store that cannot be reached for one confirmation: before it, or behind it."""

    def __init__(self, store: Store, *, happens: bool) -> None:
        super().__init__(store, StepCounter())
        self._real = store
        self._happens = happens
        self.lost = 0

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        is_lost = isinstance(operation, op.SettleMany) and operation.holder_id is not None
        if is_lost and not self._happens:
            self.lost += 1
            raise StoreUnavailable
        answer = self._real.execute(operation, deadline=deadline)
        if is_lost:
            self.lost += 1
            raise StoreUnavailable
        return answer


@pytest.mark.parametrize("happens", [False, True], ids=["before it", "behind it"])
def test_a_confirmation_without_an_answer_puts_off_what_was_not_confirmed(
    setup: EnvelopeSetup, *, happens: bool
) -> None:
    ids = setup.submit(5)
    store = LosingStore(setup.pool.store, happens=happens)
    report = setup.take(ids, step=lambda _: None, pool=Pool(store, SKU))
    assert (store.lost, list(report.put_off)) == (1, ids)
    assert setup.states(ids) == ({"confirmed": 5} if happens else {"reserved": 5})
    assert setup.found("o000").begun == 0
    assert [one.state for one in setup.take(ids).settled] == ["confirmed"] * 5
    assert setup.waiting() == 0
    setup.check(confirmed=5, available=195)


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


def test_a_gate_over_a_pool_without_one_is_refused(memory: MemoryStore, order_database: str) -> None:
    setup = EnvelopeSetup(opened(memory, "at acceptance", None), None)
    ids = setup.submit(1)
    with Gate(connect(order_database)) as gate, pytest.raises(PoolNotGated):
        take_envelope(setup.pool, ids, gate=gate)
    assert setup.found("o000").begun == 0


def test_a_gated_pool_without_its_gate_is_put_off_uncounted(gated_till: EnvelopeSetup) -> None:
    ids = gated_till.submit(2)
    report = take_envelope(gated_till.pool, ids)
    assert report.put_off == dict.fromkeys(ids, "the pool is gated, and this worker has no order database")
    assert gated_till.found("o000").begun == 0


def test_an_order_that_failed_before_is_kept_by_a_worker_without_its_database(gated_till: EnvelopeSetup) -> None:
    def fail(_: BegunOrder) -> None:
        message = "no address"
        raise ValueError(message)

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
