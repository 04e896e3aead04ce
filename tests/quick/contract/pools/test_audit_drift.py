"""Damage done to the keys of a pool behind its back: the audit finds it and names the order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.keys import shard_keys
from segmented.stock.audit import audit_plan
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from segmented.keys import ShardKeys
    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side

    Damage = Callable[[redis.Redis, ShardKeys], object]


@pytest.fixture
def damaged(plain_redis_side: Side) -> Callable[[Damage], AuditReport]:
    """Sell a little, do the damage, audit."""
    shop = Shop(plain_redis_side, plain_redis_side.name())
    shop.open(10, 2)
    shop.reserved("kept", 2)
    shop.granted("sold", 3)
    shop.confirm("sold")
    shop.grant("refused", 6, keep_refusal=True)

    def audit(damage: Damage) -> AuditReport:
        damage(plain_redis_side.raw(), shard_keys(shop.sku))
        return plain_redis_side.run(audit_plan(shop.sku))[0]

    return audit


def lines(report: AuditReport) -> list[str]:
    return [str(drift) for drift in report.drift]


def with_state(server: redis.Redis, keys: ShardKeys, order_id: str, letter: str) -> None:
    record = str(server.hget(keys.orders, order_id))
    server.hset(keys.orders, order_id, letter + record[1:])


def test_no_damage_no_drift(damaged: Callable[[Damage], AuditReport]) -> None:
    assert damaged(lambda server, _: server.ping()).is_clean


def test_a_unit_made_from_nothing(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.hincrby(keys.meta, "available", 1))
    assert lines(report) == [
        "foreign write: available is 6, the ledger says 5",
        "foreign write: stocked 10, but 6 available + 2 reserved + 3 confirmed",
    ]


def test_a_segment_that_was_written_to(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.hincrby(keys.stock, "1", 1))
    assert lines(report) == [
        "foreign write: the sum over segments is 6, the ledger says 5",
        "foreign write: segment 1 has 4 units, the ledger says 3",
    ]


def test_a_lost_record(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.hdel(keys.orders, "sold"))
    assert lines(report) == ["lost: order sold: it has no record, the ledger says confirmed with 3 units at 4"]


def test_a_changed_record(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: with_state(server, keys, "sold", "r"))
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("foreign write", "sold")]


def test_a_record_from_nowhere(damaged: Callable[[Damage], AuditReport]) -> None:
    def damage(server: redis.Redis, keys: ShardKeys) -> None:
        server.hset(keys.orders, "stray", str(server.hget(keys.orders, "sold")))

    assert lines(damaged(damage)) == [
        "foreign write: order stray: its record says confirmed with 3 units, but it has no ledger entry"
    ]


def test_a_deleted_ledger_entry(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.xdel(keys.ledger, "1-3"))
    found = [(drift.kind, drift.order_id) for drift in report.drift]
    assert ("foreign write", None) in found
    assert ("foreign write", "sold") in found


def test_a_ledger_that_vanished(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.delete(keys.ledger))
    assert [drift.detail for drift in report.drift if drift.about == "ledger"] == [
        f"entry {sequence} is missing" for sequence in range(1, 6)
    ]


def test_an_oversale(damaged: Callable[[Damage], AuditReport]) -> None:
    report = damaged(lambda server, keys: server.hincrby(keys.meta, "confirmed", 9))
    assert report.oversold == 4
    assert not report.is_clean


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
    reasons = {repair.detail.rpartition(": ")[2] for repair in done.repairs}
    assert reasons == {
        "the ledger itself is damaged, so it cannot say what is right",
        "it is in the ledger, which is never rewritten",
    }
