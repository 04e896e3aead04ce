"""Figures of a deployment with many pools. `pytest -s -n 0 -m long tests/long/test_day_after_figures.py` prints them.

One worker's periodic tasks run in this process, each in its own period, as beat would send them.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, get_args

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, create_engine, make_url

from segmented import Gate, Order, Outbox, Pool, RedisStore, protocol as op
from segmented.celery import chores, connections as opening, current, due
from segmented.celery.celery_settings import AUDIT_SECONDS
from segmented.celery.settings import WorkerSettings
from segmented.keys import Duty, due_key
from segmented.orders import audit_both, take_envelope
from segmented.orders.audit_slices import SliceReport, audit_slice
from segmented.protocol.due import EACH_MS
from segmented.servers import ValkeyServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

POOLS: Final = 300
"""Quiet pools are looked at one by one, so that 2,000 cost no more."""
MANY: Final = 10_000
SET_UP_SECONDS: Final = 60.0
HELD_SECONDS: Final = 60.0
LATE_SECONDS_MAX: Final = 2.0
"""The period is one second."""
IDLE_SECONDS: Final = 60.0
COMMANDS_MAX: Final = 10.0
LOST_AMONG: Final = 100_000
LOST_SECONDS_MAX: Final = 10.0
ABANDONED: Final = 5_000
BACK_SECONDS_MAX: Final = 2.0
AUDITED: Final = 20_000
MANY_AUDITED: Final = 600_000
FAR: Final = 4e12
ROUNDS: Final = 300
RETURN_MAX: Final = 2.0
"""It is 1.5 at most where nothing else runs: four round trips instead of three."""


@pytest.fixture
def store(start_valkey: Callable[..., ValkeyServer], postgres_database: str) -> Iterator[RedisStore]:
    """A stock server of its own, and this process as its worker."""
    server = start_valkey()
    said = WorkerSettings(url=SecretStr(server.url), database=SecretStr(postgres_database), broker_on_stock_server=True)
    current.use(said)
    due.adopted_until.clear()
    due.idle_until.clear()
    with Gate(postgres_database) as gate:
        gate.create()
    with RedisStore.from_url(server.url) as made:
        yield made
    opening.disconnect()
    current.use(None)


def tell(what: str, figure: str) -> None:
    sys.stdout.write(f"\n{what}: {figure} ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})\n")


def duties() -> list[tuple[float, Callable[[], Any]]]:
    """The periodic tasks; the sweep asks for what is due, as no message can be lost here."""
    said = current.settings()
    return [
        (said.sweep_every, lambda: due.is_idle("sweep") or looked("sweep")),
        (said.expire_every, chores.expire.apply),
        (said.transfers_every, chores.finish_transfers.apply),
        (said.relay_every, chores.relay.apply),
        (said.forget_every, chores.forget.apply),
        (AUDIT_SECONDS, chores.audit.apply),
    ]


def looked(duty: Duty) -> list[str]:
    """Look at the pools that are due, as the sweep does; returns them."""
    store, seen = opening.connections().store, list[str]()

    def one(name: str) -> tuple[None, int | None]:
        seen.append(name)
        return None, store.execute(op.ReadNextDue(name)).publish_in_ms

    due.work_on_due(duty, 1.0, one, goes_on=lambda: True)
    return seen


def work(seconds: float, late: list[float] | None = None) -> None:
    """Run the periodic tasks, each in its period and a thread, as a worker does.

    `late` gets by how much the first pool of `expire` was late at each look.
    """
    until = time.monotonic() + seconds

    def repeat(every: float, run: Callable[[], Any]) -> None:
        while (at := time.monotonic()) < until:
            if late is not None and run == chores.expire.apply:
                ((_, score),) = opening.connections().store.client.zrange(due_key("expire"), 0, 0, withscores=True)
                late.append(time.time() - score / 1_000)
            run()
            time.sleep(max(0.0, at + every - time.monotonic()))

    with ThreadPoolExecutor() as threads:
        for ended in [threads.submit(repeat, *duty) for duty in duties() if duty[0] <= seconds]:
            ended.result()


def look_quiet(store: RedisStore, names: list[str]) -> None:
    """Let pools be as if workers had looked at all of them, and found nothing due."""
    now = time.time() * 1_000
    for key in get_args(Duty):
        found = {name: int(now + number * EACH_MS[key]) + 0.5 for number, name in enumerate(names)}
        store.client.zadd(due_key(key), found)


def commands(store: RedisStore) -> dict[str, int]:
    return {name[8:]: found["calls"] for name, found in store.client.info("commandstats").items()}


def test_what_idle_pools_cost(store: RedisStore) -> None:
    for number in range(POOLS):
        Pool(store, f"quiet-{number}").open(stock=10, segments=1)
    look_quiet(store, [f"quiet-{number}" for number in range(POOLS)])
    work(2.0)
    before = commands(store)
    work(IDLE_SECONDS)
    after = commands(store)
    sent = {name: (after[name] - before.get(name, 0)) / IDLE_SECONDS for name in after}
    most = ", ".join(f"{name} {rate:.1f}" for name, rate in sorted(sent.items(), key=lambda one: -one[1])[:9])
    tell(f"{POOLS} idle pools, commands/s", f"{sum(sent.values()):.1f}, those within scripts included; {most}")
    assert sum(sent.values()) <= COMMANDS_MAX


def test_holds_of_10_000_pools_come_back_within_the_period_of_one_worker(store: RedisStore) -> None:
    """Each pool has one abandoned hold in ten minutes; this looks at the tenth of them that ends within one."""
    names, late = [f"shop-{number}" for number in range(MANY)], list[float]()
    for name in names:
        Pool(store, name).open(stock=10, segments=1)
    look_quiet(store, names)
    held, began = [Pool(store, name) for name in names[::10]], time.monotonic()
    for number, pool in enumerate(held):
        ends_in = SET_UP_SECONDS + number * HELD_SECONDS / len(held) - (time.monotonic() - began)
        pool.reserve("abandoned", hold=ends_in)
    work(began + SET_UP_SECONDS - time.monotonic())  # what was due meanwhile
    work(HELD_SECONDS + LATE_SECONDS_MAX, late=late)
    assert [pool.state().available for pool in held] == [10] * len(held)
    tell(
        f"{MANY:,} pools, {len(held) / HELD_SECONDS:.0f} holds a second end",
        f"looked at {max(late):.1f} s late at most",
    )
    assert max(late) <= LATE_SECONDS_MAX


def test_a_lost_order_is_found_within_ten_seconds_among_100_000_pools(store: RedisStore) -> None:
    for first in range(0, LOST_AMONG, 10_000):
        quiet = {f"quiet-{number}": FAR for number in range(first, first + 10_000)}
        store.client.zadd(due_key("sweep"), quiet)
    pool = Pool(store, "mug", outbox=Outbox(publish_after=1.0))
    pool.open(stock=10, segments=1)
    looked("sweep")
    pool.submit("lost")
    began = time.monotonic()
    is_found = False
    while not is_found:
        time.sleep(current.settings().sweep_every)
        in_ms = store.execute(op.ReadNextDue("mug")).publish_in_ms
        is_found = "mug" in looked("sweep") and in_ms is not None and in_ms <= 0
    seconds = time.monotonic() - began
    tell(f"a lost order among {LOST_AMONG:,} pools", f"found {seconds:.1f} s after it was submitted")
    assert seconds <= LOST_SECONDS_MAX


def test_5_000_abandoned_gated_holds_are_back_within_two_seconds(store: RedisStore, postgres_database: str) -> None:
    with Gate(postgres_database) as gate:
        pool = Pool(store, "sale", gate=gate, hold=5.0, ttl=1.0)
        pool.open(stock=ABANDONED, segments=4)
        for first in range(0, ABANDONED, 1_000):
            pool.reserve_many([Order(f"a-{first + number}", 1) for number in range(1_000)])
        assert pool.state().available == 0
        time.sleep(6.0)  # all holds have ended by the server's clock
        began, cpu = time.monotonic(), time.process_time()
        while pool.state().available < ABANDONED:
            chores.expire()
        seconds, used = time.monotonic() - began, time.process_time() - cpu
    tell(f"{ABANDONED:,} abandoned gated holds", f"back in {seconds:.2f} s, {used:.2f} s of this process's CPU")
    assert used <= BACK_SECONDS_MAX


def test_how_fast_a_pool_is_compared_with_its_database(store: RedisStore, postgres_database: str) -> None:
    with Gate(postgres_database) as gate:
        pool = sold(store, gate, AUDITED)
        began, cpu = time.monotonic(), time.process_time()
        report = audit_both(pool, gate)
        seconds, used = time.monotonic() - began, time.process_time() - cpu
    tell(f"audit of {AUDITED:,} orders against PostgreSQL", f"{AUDITED / used:,.0f} orders/s of CPU, {seconds:.1f} s")
    assert (report.is_clean, report.pool_count) == (True, AUDITED)


def test_600_000_orders_are_audited_to_the_end_in_slices(store: RedisStore, postgres_database: str) -> None:
    with Gate(postgres_database) as gate:
        pool, slices = sold(store, gate, MANY_AUDITED), list[SliceReport]()
        began, cpu = time.monotonic(), time.process_time()
        while not (slices and slices[-1].is_ended):
            end = time.monotonic() + current.settings().task_time_limit / 2  # as in a worker
            slices.append(audit_slice(pool, gate, is_over=partial(has_come, end)))
        seconds, used = time.monotonic() - began, time.process_time() - cpu
    tell(
        f"{MANY_AUDITED:,} orders audited",
        f"{len(slices)} slices, {seconds:.0f} s, {MANY_AUDITED / used:,.0f} a s of CPU",
    )
    assert [one.found for one in slices] == [()] * len(slices)


def has_come(end: float) -> bool:
    return time.monotonic() >= end


def sold(store: RedisStore, gate: Gate, count: int) -> Pool:
    """Sell that many orders, a thousand in a transaction."""
    pool = Pool(store, "sale", outbox=Outbox(publish_after=3_600))
    Pool(store, "sale", gate=gate).open(stock=count, segments=4)
    for first in range(0, count, 1_000):
        ids = [f"o-{first + number}" for number in range(1_000)]
        pool.submit_many([Order(order_id, 1) for order_id in ids])
        take_envelope(pool, ids, gate=gate)
    return pool.plain


def test_what_a_return_costs_beside_a_confirm(store: RedisStore, postgres_database: str) -> None:
    engine = create_engine(make_url(postgres_database).set(drivername="postgresql+psycopg"))
    took: dict[str, list[float]] = {"confirm": [], "return": [], "within": []}

    def timed(name: str, run: Callable[[], object]) -> None:
        began = time.perf_counter()
        run()
        took[name].append(time.perf_counter() - began)

    with Gate(postgres_database) as gate:
        pool = Pool(store, "sale", gate=gate)
        pool.open(stock=4 * ROUNDS, segments=4)
        for number in range(ROUNDS):  # in turns, so that a load of the machine meets each of them
            one, other = f"a-{number}", f"b-{number}"
            pool.reserve_many([Order(one, 2), Order(other, 2)])
            timed("confirm", partial(pool.confirm, one))
            timed("return", partial(pool.return_units, one, 1, return_id=one))
            timed("within", partial(confirm_within, pool, engine, other))
    engine.dispose()
    medians = {name: statistics.median(each) for name, each in took.items()}
    returned, within = (medians[name] / medians["confirm"] for name in ("return", "within"))
    tell("a gated confirm", f"{medians['confirm'] * 1_000:.2f} ms; a return {returned:.2f}, within= {within:.2f} times")
    assert returned <= RETURN_MAX


def confirm_within(pool: Pool, engine: Engine, order_id: str) -> None:
    with engine.begin() as connection:
        sold = pool.confirm(order_id, within=connection)
    sold.tell()
