"""Pools in shards where a careful reader found a fault: what failovers take, openings at once, and foreign writes."""

from segmented import protocol as op
from segmented.keys import shard_keys
from tests.fixtures.stores import Side, another_process
from tests.support.contract.shards.sharding import at_home_in, check_all, refused, remembered, sharded, shards_of, taken


def free_of_each(side: Side, sku: str) -> list[int]:
    return [side.execute(op.ReadPool(shard)).available for shard in shards_of(side, sku)]


# --- failovers that lose what a shard had acknowledged ---


def test_units_doubled_by_a_sources_failover_are_named_and_mended_by_its_transfer(side: Side) -> None:
    sku = side.name()
    pool = sharded(side, sku)
    pool.open(stock=20_000, segments=2, shards=2)
    x, y, z, big, last = at_home_in(0, 2)[:5]
    elsewhere = at_home_in(1, 2)[0]
    taken(pool.reserve(x, quantity=10_000))
    fail_over = remembered(side, shards_of(side, sku)[1])
    taken(pool.reserve(y))
    assert free_of_each(side, sku) == [4_999, 5_000]
    fail_over()
    assert free_of_each(side, sku) == [4_999, 10_000]
    with another_process(side) as other:  # for this one, which has seen what was lost, the shard would be frozen
        pool = sharded(other, sku)
        assert [taken(pool.reserve(z, quantity=4_999)), taken(pool.reserve(elsewhere, quantity=10_000))] == [
            4_999,
            10_000,
        ]
        report = pool.audit()
        assert (report.state.reserved, report.oversold, report.is_clean) == (25_000, 5_000, False)
        assert [(drift.kind, drift.name) for drift in report.drift] == [("foreign write", "1>0")]
        assert report.drift[0].detail == "shard 0 received 5000 units from shard 1, which sent 0"
        pool.cancel(elsewhere)
        assert refused(pool.reserve(big, quantity=6_000)) == (5_000, 15_000)
        assert pool.audit().drift == ()
        assert taken(pool.reserve(last, quantity=5_000)) == 5_000
        assert (pool.state().available, pool.state().reserved) == (0, 20_000)
        check_all(pool)


def test_units_that_a_target_lost_come_with_the_next_transfer_and_orders_are_served(side: Side) -> None:
    sku = side.name()
    pool = sharded(side, sku)
    pool.open(stock=300, segments=3, shards=3)
    first, second, third, last = at_home_in(0, 3)[:4]
    fail_over = remembered(side, shards_of(side, sku)[0])
    taken(pool.reserve(first, quantity=120))
    assert free_of_each(side, sku) == [0, 80, 100]
    fail_over()  # which forgot the order, too
    assert free_of_each(side, sku) == [100, 80, 100]
    report = pool.audit()
    assert [(drift.kind, drift.name) for drift in report.drift] == [("orphan transfer", "1>0")]
    assert report.drift[0].detail == "shard 1 knows that 20 of its units arrived at shard 0, which received 0"
    with another_process(side) as other:  # for this one, which has seen what was lost, the shard would be frozen
        pool = sharded(other, sku)
        assert taken(pool.reserve(second, quantity=130)) == 130
        assert free_of_each(side, sku) == [0, 80, 70]
        assert taken(pool.reserve(third, quantity=50)) == 50
        assert free_of_each(side, sku) == [20, 30, 70]
        assert taken(pool.reserve(last, quantity=120)) == 120
        check_all(pool)


# --- opening, and what somebody else wrote ---


def test_a_transfer_with_a_shard_that_is_none_is_told_by_audit_and_repair(plain_redis_side: Side) -> None:
    for note in ("sent:7", "away:7", "received:7", "away:0", "sent:0"):
        sku = plain_redis_side.name()
        pool = sharded(plain_redis_side, sku)
        pool.open(stock=20, segments=4, shards=2)
        plain_redis_side.raw().hset(shard_keys(shards_of(plain_redis_side, sku)[0]).transfers, note, "1 5")
        report = pool.audit()
        assert not report.is_clean, note
        done = pool.repair(report, yes=True)
        assert (done.is_clean, done.done_count, len(done.repairs)) == (False, 0, report.drift_count), note
        assert {repair.kind for repair in done.repairs} <= {"foreign write", "orphan transfer"}, note
        assert pool.state().available == 20, note
