"""What somebody else writes to a pool's keys: the audit names it, and a repair mends it or says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize("value", ["abc", "1.5", "", "1_0", "٣", "9" * 40, b"\xff"])
def test_a_total_that_is_no_number_is_named_and_left(
    pool: Pool, keys: ShardKeys, server: redis.Redis, value: str | bytes
) -> None:
    server.hset(keys.meta, "available", value)
    assert (pool.state().available, pool.state().unreadable) == (0, ("available",))
    report = pool.audit()
    assert details(report)[0] == "available is not a whole number, the ledger says 5"
    done = pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean) == (0, False)
    assert done.repairs[0].detail == (
        "available is not a whole number, the ledger says 5: cannot be mended: no change can be made while a number "
        "of the pool cannot be read; write what is right by hand"
    )
    server.hset(keys.meta, "available", 5)
    assert pool.audit().is_clean
    assert it_sells(pool)


@pytest.mark.parametrize(
    "name",
    [
        "epoch",
        "segment_count",
        "gated",
        "sequence",
        "opened",
        "reserved",
        "confirmed",
        "restocked",
        "withdrawn",
        "customer_limit",
        "closed",
        "fence",
        "cursor",
        "ledger_start",
    ],
)
def test_every_number_of_the_pool_may_be_anything(pool: Pool, keys: ShardKeys, server: redis.Redis, name: str) -> None:
    server.hset(keys.meta, name, "x")
    report = pool.audit()
    assert any(detail.startswith(f"{name} is not a whole number") for detail in details(report))
    assert report.oversold == 0
    done = pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean) == (0, False)


@pytest.mark.parametrize("name", ["segment_count", "available", "fence", "sequence"])
def test_a_number_that_is_gone_is_named(pool: Pool, keys: ShardKeys, server: redis.Redis, name: str) -> None:
    server.hdel(keys.meta, name)
    assert any(detail.startswith(f"{name} is not a whole number") for detail in details(pool.audit()))


@pytest.mark.parametrize("value", ["abc", "4.5"])
def test_units_that_are_no_number_are_named_and_mended(
    pool: Pool, keys: ShardKeys, server: redis.Redis, value: str
) -> None:
    before = pool.state()
    server.hset(keys.stock, "1", value)
    assert pool.state().unreadable == ("segment 1",)
    report = pool.audit()
    assert details(report) == [
        f"the sum over segments is {before.stock[0]}, the ledger says 5",
        f"segment 1 has no whole number of units, the ledger says {before.stock[1]}",
    ]
    done = pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean) == (2, True)
    assert pool.state().stock == before.stock
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


@pytest.mark.parametrize("moment", [float("inf"), 1.5])
def test_a_hold_may_end_at_any_moment(pool: Pool, keys: ShardKeys, server: redis.Redis, moment: float) -> None:
    server.zadd(keys.holds, {"kept": moment})
    assert pool.audit().is_clean


# --- the end of the ledger ---


@pytest.mark.parametrize("entry_id", ["*", "1-5", "1-*", "7-1"])
def test_an_entry_behind_the_ledgers_end_is_removed_and_the_pool_sells_again(
    pool: Pool, keys: ShardKeys, server: redis.Redis, entry_id: str
) -> None:
    found = server.xadd(keys.ledger, {"x": "y"}, id=entry_id)
    last = found.decode() if isinstance(found, bytes) else found
    state = pool.state()
    report = pool.audit()
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
    pool.confirm("kept")
    assert pool.audit().is_clean
    assert pool.repair(report, yes=True).done_count == 0


def test_a_last_id_that_was_left_behind_is_set_back(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    server.xdel(keys.ledger, server.xadd(keys.ledger, {"x": "y"}))
    report = pool.audit()
    assert not report.is_clean
    assert pool.repair(report, yes=True).is_clean
    assert it_sells(pool)


def test_many_entries_behind_the_end_go_and_other_drift_is_mended_after_them(
    pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    pipe = server.pipeline()
    for _ in range(2_500):
        pipe.xadd(keys.ledger, {"x": "y"})
    pipe.hincrby(keys.meta, "confirmed", 1)
    pipe.execute()
    done = pool.repair(pool.audit(), yes=True)
    assert (done.is_clean, done.repairs[0].detail.rpartition(": ")[2]) == (True, "mended by entry 5")
    assert it_sells(pool)


def test_a_long_ledger_is_copied_in_steps(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    for index in range(10_000):
        pool.restock(1, restock_id=f"r{index}")
    server.xadd(keys.ledger, {"x": "y"})
    done = pool.repair(pool.audit(), yes=True)
    assert [repair.detail.rpartition(": ")[2] for repair in done.repairs] == ["mended by entry 10005"]
    assert (done.is_clean, server.xlen(keys.ledger), server.exists(keys.ledger_copy)) == (True, 10_005, 0)
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


def test_a_sequence_number_behind_the_pools_own_entries_is_advanced_to_the_last_of_them(
    pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    server.hincrby(keys.meta, "sequence", -2)
    report = pool.audit()
    assert details(report)[0] == "the ledger ends with 1-4, beyond change 2: the pool cannot go on"
    with RedisStore(server) as other:  # for this process, which has seen changes 3 and 4, the pool would be frozen
        done = Pool(other, pool.sku).repair(report, yes=True)
    assert (done.is_clean, server.xlen(keys.ledger)) == (True, 5)
    assert done.repairs[0].detail.endswith("mended by entry 5")
    assert it_sells(pool)


def test_foreign_entries_behind_the_counted_ones_are_removed(pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    server.hincrby(keys.meta, "sequence", -2)
    server.xadd(keys.ledger, {"x": "y"})
    with RedisStore(server) as other:
        assert Pool(other, pool.sku).repair(pool.audit(), yes=True).is_clean
    assert server.xlen(keys.ledger) == 5
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


def test_foreign_entries_in_place_of_a_ledger_are_missing_ones(
    pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    server.delete(keys.ledger)
    server.xadd(keys.ledger, {"x": "y"}, id="1-2")
    server.xadd(keys.ledger, {"kind": "reserved", "at_us": "x", "lines": "a\tb", "chain": "0"}, id="1-3")
    assert [drift.detail for drift in pool.audit().drift if drift.about == "ledger"] == [
        f"entry {sequence} is missing" for sequence in range(1, 5)
    ]
