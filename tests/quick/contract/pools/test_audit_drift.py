"""Damage done to the keys of a pool behind its back: the audit finds it and names the order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.keys import shard_keys
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from segmented.keys import ShardKeys
    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side

    Damage = Callable[[redis.Redis, ShardKeys], object]


def report_of(side: Side, damage: Damage) -> AuditReport:
    """Sell a little, do the damage, audit."""
    shop = Shop(side, side.name())
    shop.open(10, 2)
    shop.reserved("kept", 2)
    shop.granted("sold", 3)
    shop.confirm("sold")
    shop.grant("refused", 6, keep_refusal=True)
    damage(side.raw(), shop.keys)
    return side.pool(shop.sku).audit()


def with_state(server: redis.Redis, keys: ShardKeys, order_id: str, letter: str) -> None:
    record = str(server.hget(keys.orders, order_id))
    server.hset(keys.orders, order_id, letter + record[1:])


NAMED: tuple[tuple[Damage, list[str]], ...] = (
    (lambda server, _: server.ping(), []),
    (
        lambda server, keys: server.hincrby(keys.meta, "available", 1),
        [
            "foreign write: available is 6, the ledger says 5",
            "foreign write: stocked 10, but 6 available + 2 reserved + 3 confirmed",
        ],
    ),
    (
        lambda server, keys: server.hincrby(keys.stock, "1", 1),
        [
            "foreign write: the sum over segments is 6, the ledger says 5",
            "foreign write: segment 1 has 4 units, the ledger says 3",
        ],
    ),
    (
        lambda server, keys: server.hdel(keys.orders, "sold"),
        ["lost: order sold: it has no record, the ledger says confirmed with 3 units at 4"],
    ),
    (
        lambda server, keys: server.hset(keys.orders, "stray", str(server.hget(keys.orders, "sold"))),
        ["foreign write: order stray: its record says confirmed with 3 units, but it has no ledger entry"],
    ),
)


def test_what_was_damaged_is_named(plain_redis_side: Side) -> None:
    for damage, expected in NAMED:
        assert [str(drift) for drift in report_of(plain_redis_side, damage).drift] == expected


def test_a_changed_record(plain_redis_side: Side) -> None:
    report = report_of(plain_redis_side, lambda server, keys: with_state(server, keys, "sold", "r"))
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("foreign write", "sold")]


def test_a_damaged_ledger(plain_redis_side: Side) -> None:
    report = report_of(plain_redis_side, lambda server, keys: server.xdel(keys.ledger, "1-3"))
    found = [(drift.kind, drift.order_id) for drift in report.drift]
    assert {("foreign write", None), ("foreign write", "sold")} <= {*found}
    report = report_of(plain_redis_side, lambda server, keys: server.delete(keys.ledger))
    gone = [drift.detail for drift in report.drift if drift.about == "ledger"]
    assert gone == [f"entry {sequence} is missing" for sequence in range(1, 6)]


def test_an_oversale(plain_redis_side: Side) -> None:
    report = report_of(plain_redis_side, lambda server, keys: server.hincrby(keys.meta, "confirmed", 9))
    assert (report.oversold, report.is_clean) == (4, False)


def test_a_damaged_ledger_mends_nothing(plain_redis_side: Side) -> None:
    pool = plain_redis_side.pool(plain_redis_side.name())
    keys, server = shard_keys(pool.sku), plain_redis_side.raw()
    pool.open(stock=10, segments=2)
    pool.reserve("kept")
    pool.reserve("sold")
    server.xdel(keys.ledger, "1-3")
    server.hdel(keys.orders, "kept")
    before = pool.state()
    report = pool.audit()
    assert {drift.about for drift in report.drift} == {"total", "segment", "sum", "order", "ledger"}
    done = pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean, pool.state()) == (0, False, before)
    assert {repair.detail.rpartition(": ")[2] for repair in done.repairs} == {
        "the ledger itself is damaged, so it cannot say what is right",
        "it is in the ledger, which is never rewritten",
    }
