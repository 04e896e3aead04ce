"""What somebody else writes to a pool's keys: the audit names it, and a repair mends it or says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.models import Order, Reserved
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    import redis

    from segmented.keys import ShardKeys
    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side


COUNTED = "later entries would be counted if they are the pool's own, otherwise removed"
NUMBERS = (
    *("epoch", "segment_count", "gated", "sequence", "opened", "reserved", "confirmed", "restocked", "withdrawn"),
    *("customer_limit", "closed", "fence", "cursor", "ledger_start"),
)
GONE = ("segment_count", "fence", "sequence")
"""Numbers that a pool always has."""


@pytest.fixture
def pool(plain_redis_side: Side) -> Pool:
    """Ten units in two segments: ann has two reserved, bob three that are sold."""
    pool = plain_redis_side.pool(plain_redis_side.name())
    pool.open(stock=10, segments=2, limit_per_customer=5)
    pool.reserve(Order("kept", 2, "ann"))
    pool.reserve(Order("sold", 3, "bob"))
    pool.confirm("sold")
    return pool


@pytest.fixture
def keys(pool: Pool) -> ShardKeys:
    return shard_keys(pool.sku)


@pytest.fixture
def server(plain_redis_side: Side) -> redis.Redis:
    return plain_redis_side.raw()


def details(report: AuditReport) -> list[str]:
    assert {drift.kind for drift in report.drift} <= {"foreign write"}
    return [drift.detail for drift in report.drift]


def it_sells(pool: Pool) -> bool:
    return isinstance(pool.reserve(Order("next", 1, "cy")), Reserved)


# --- numbers ---


def test_a_total_that_is_no_number_is_named_and_left(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    values: list[str | bytes] = ["abc", "1.5", "", "1_0", "٣", "9" * 40, b"\xff"]
    for value in values:
        server.hset(keys.meta, "available", value)
        assert (pool.state().available, pool.state().unreadable) == (0, ("available",)), value
        report = pool.audit()
        said = "available is not a whole number, the ledger says 5"
        assert details(report)[0] == said, value
        done = pool.repair(report, yes=True)
        assert (done.done_count, done.is_clean) == (0, False), value
        assert done.repairs[0].detail.startswith(f"{said}: cannot be mended: no change can be made while a number"), (
            value
        )
    server.hset(keys.meta, "available", 5)
    assert pool.audit().is_clean
    assert it_sells(pool)


def test_every_number_of_the_pool_may_be_anything(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    before = server.hgetall(keys.meta)
    for name in NUMBERS:
        for value in ("x", None):
            server.hset(keys.meta, name, value) if value else server.hdel(keys.meta, name)
            report = pool.audit()
            is_named = any(detail.startswith(f"{name} is not a whole number") for detail in details(report))
            assert (is_named or (value is None and name not in GONE), report.oversold) == (True, 0), (name, value)
            assert value is None or pool.repair(report, yes=True).done_count == 0, name
            server.hset(keys.meta, name, before[name]) if name in before else server.hdel(keys.meta, name)
    assert pool.audit().is_clean


def test_units_that_are_no_number_are_named_and_mended(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    before = pool.state()
    for value in ("abc", "4.5"):
        server.hset(keys.stock, "1", value)
        assert pool.state().unreadable == ("segment 1",)
        report = pool.audit()
        assert details(report) == [
            f"the sum over segments is {before.stock[0]}, the ledger says 5",
            f"segment 1 has no whole number of units, the ledger says {before.stock[1]}",
        ]
        done = pool.repair(report, yes=True)
        assert (done.done_count, done.is_clean, pool.state().stock) == (2, True, before.stock)
    assert it_sells(pool)


def test_a_segment_that_is_no_number_is_named_and_left(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    server.hset(keys.stock, "first", "3")
    report = pool.audit()
    assert details(report) == ["there are units of a segment 'first', which is not a whole number"]
    done = pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean) == (0, False)
    assert done.repairs[0].detail.endswith("cannot be mended: it does not belong to the pool; remove it by hand")
    assert it_sells(pool)


def test_a_customer_without_a_number_is_named_and_mended(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    server.hset(keys.customers, "ann", "abc")
    server.hset(keys.customers, "eve", "1.5")
    report = pool.audit()
    assert details(report) == [
        "customer ann has no whole number of units, the ledger says 2",
        "customer eve has no whole number of units, the ledger says 0",
    ]
    assert pool.repair(report, yes=True).is_clean
    assert server.hgetall(keys.customers) in ({"ann": "2", "bob": "3"}, {b"ann": b"2", b"bob": b"3"})


def test_a_hold_may_end_at_any_moment(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    for moment in (float("inf"), 1.5):
        server.zadd(keys.holds, {"kept": moment})
        assert pool.audit().is_clean


# --- the end of the ledger ---


@pytest.mark.parametrize("entry_id", ["*", "1-5", "7-1"])
def test_an_entry_behind_the_ledgers_end_is_removed_and_the_pool_sells_again(
    pool: Pool, keys: ShardKeys, server: redis.Redis, entry_id: str
) -> None:
    found = server.xadd(keys.ledger, {"x": "y"}, id=entry_id)
    last = found.decode() if isinstance(found, bytes) else found
    state, report = pool.state(), pool.audit()
    expected = f"the ledger ends with {last}, beyond change 4: the pool cannot go on"
    assert details(report) == [expected]
    told = pool.repair(report, yes=False)
    assert [str(one) for one in told.repairs] == [f"left: foreign write: {expected}: {COUNTED}"]
    assert pool.state() == state
    done = pool.repair(report, yes=True)
    assert [str(one) for one in done.repairs] == [f"mended: foreign write: {expected}: mended by entry 5"]
    assert (done.is_clean, server.xlen(keys.ledger)) == (True, 5)
    assert list(pool.read_ledger())[-1].note == "ledger end"
    assert it_sells(pool)
    assert pool.repair(report, yes=True).done_count == 0
    server.xdel(keys.ledger, server.xadd(keys.ledger, {"x": "y"}))  # its id is left behind
    report = pool.audit()
    assert not report.is_clean
    assert pool.repair(report, yes=True).is_clean
    pool.confirm("kept")
    assert pool.audit().is_clean


def test_a_long_ledger_is_copied_in_steps(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    """And many entries behind its end are removed, before other drift is mended."""
    pool.store.execute_many([op.Restock(pool.sku, f"r{index}", 1) for index in range(1_100)])
    pipe = server.pipeline()
    for _ in range(1_100):
        pipe.xadd(keys.ledger, {"x": "y"})
    pipe.hincrby(keys.meta, "confirmed", 1)
    pipe.execute()
    done = pool.repair(pool.audit(), yes=True)
    assert done.repairs[0].detail.endswith("mended by entry 1105")
    assert (done.is_clean, server.xlen(keys.ledger), server.exists(keys.ledger_copy)) == (True, 1_106, 0)
    assert it_sells(pool)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_copy_that_an_earlier_repair_has_left_is_not_trusted(
    pool: Pool, keys: ShardKeys, server: redis.Redis, *, is_own: bool
) -> None:
    if is_own:
        server.copy(keys.ledger, keys.ledger_copy)
        server.xdel(keys.ledger_copy, "1-1")
    else:
        server.xadd(keys.ledger_copy, {"stale": "y"}, id="1-2")
    server.xadd(keys.ledger, {"x": "y"})
    assert pool.repair(pool.audit(), yes=True).is_clean
    assert (server.xlen(keys.ledger), server.exists(keys.ledger_copy)) == (5, 0)
    assert it_sells(pool)


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_sequence_behind_the_pools_own_entries_is_advanced_to_the_last_of_them(
    pool: Pool, keys: ShardKeys, server: redis.Redis, *, is_followed: bool
) -> None:
    """Foreign entries behind them are removed."""
    server.hincrby(keys.meta, "sequence", -2)
    if is_followed:
        server.xadd(keys.ledger, {"x": "y"})
    report = pool.audit()
    assert details(report)[0].endswith("beyond change 2: the pool cannot go on")
    with RedisStore(server) as other:  # for this process, which has seen changes 3 and 4, the pool would be frozen
        done = Pool(other, pool.sku).repair(report, yes=True)
    assert (done.is_clean, server.xlen(keys.ledger)) == (True, 5)
    assert done.repairs[0].detail.endswith("mended by entry 5")
    assert it_sells(pool)


def test_an_entry_that_looks_like_the_pools_own_is_neither_counted_nor_removed(
    pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    fields = ("kind", "confirmed", "at_us", "1", "lines", "kept\t2\t0", "chain", "0123456789abcdef")
    server.execute_command("XADD", keys.ledger, "1-5", *fields)
    done = pool.repair(pool.audit(), yes=True)
    assert (done.done_count, server.xlen(keys.ledger)) == (0, 5)
    assert done.repairs[0].detail.endswith(
        "cannot be mended: a later entry looks like the pool's own, and does not follow its last change"
    )
