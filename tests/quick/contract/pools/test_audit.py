"""The audit and the repair of a pool, and what other programs wrote into it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolDiffers
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen, Differing, Inspected, LedgerEntry, Mended, Order, Outrun, Reserved, Sound
from segmented.stock import Pool
from segmented.stock.audit import audit_plan
from segmented.stock.repair import Repair, RepairReport, repair_plan
from segmented.stores.redis import RedisStore
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import redis

    from segmented.keys import ShardKeys
    from segmented.models import OrderRecord
    from segmented.models.pools import NumberKind
    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side

    Damage = Callable[[redis.Redis, ShardKeys], object]


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


COUNTED = "later entries would be counted if they are the pool's own, otherwise removed"
NUMBERS = (
    *("epoch", "segment_count", "gated", "sequence", "opened", "reserved", "confirmed", "restocked", "withdrawn"),
    *("customer_limit", "closed", "fence", "cursor", "ledger_start"),
)
GONE = ("segment_count", "fence", "sequence")
"""Numbers that a pool always has."""


@pytest.fixture
def audited_pool(plain_redis_side: Side) -> Pool:
    """Ten units in two segments: ann has two reserved, bob three that are sold."""
    audited_pool = plain_redis_side.pool(plain_redis_side.name())
    audited_pool.open(stock=10, segments=2, limit_per_customer=5)
    audited_pool.reserve(Order("kept", 2, "ann"))
    audited_pool.reserve(Order("sold", 3, "bob"))
    audited_pool.confirm("sold")
    return audited_pool


@pytest.fixture
def keys(audited_pool: Pool) -> ShardKeys:
    return shard_keys(audited_pool.sku)


@pytest.fixture
def server(plain_redis_side: Side) -> redis.Redis:
    return plain_redis_side.raw()


def details(report: AuditReport) -> list[str]:
    assert {drift.kind for drift in report.drift} <= {"foreign write"}
    return [drift.detail for drift in report.drift]


def it_sells(audited_pool: Pool) -> bool:
    return isinstance(audited_pool.reserve(Order("next", 1, "cy")), Reserved)


# --- numbers ---


def test_every_number_of_the_pool_may_be_anything(audited_pool: Pool, keys: ShardKeys, server: redis.Redis) -> None:
    before = server.hgetall(keys.meta)
    for name in NUMBERS:
        for value in ("x", None):
            server.hset(keys.meta, name, value) if value else server.hdel(keys.meta, name)
            report = audited_pool.audit()
            is_named = any(detail.startswith(f"{name} is not a whole number") for detail in details(report))
            assert (is_named or (value is None and name not in GONE), report.oversold) == (True, 0), (name, value)
            assert value is None or audited_pool.repair(report, yes=True).done_count == 0, name
            server.hset(keys.meta, name, before[name]) if name in before else server.hdel(keys.meta, name)
    assert audited_pool.audit().is_clean


def test_units_that_are_no_number_are_named_and_mended(
    audited_pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    before = audited_pool.state()
    for value in ("abc", "4.5"):
        server.hset(keys.stock, "1", value)
        assert audited_pool.state().unreadable == ("segment 1",)
        report = audited_pool.audit()
        assert details(report) == [
            f"the sum over segments is {before.stock[0]}, the ledger says 5",
            f"segment 1 has no whole number of units, the ledger says {before.stock[1]}",
        ]
        done = audited_pool.repair(report, yes=True)
        assert (done.done_count, done.is_clean, audited_pool.state().stock) == (2, True, before.stock)
    assert it_sells(audited_pool)


def test_a_segment_that_is_no_number_is_named_and_left(
    audited_pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    server.hset(keys.stock, "first", "3")
    report = audited_pool.audit()
    assert details(report) == ["there are units of a segment 'first', which is not a whole number"]
    done = audited_pool.repair(report, yes=True)
    assert (done.done_count, done.is_clean) == (0, False)
    assert done.repairs[0].detail.endswith("cannot be mended: it does not belong to the pool; remove it by hand")
    assert it_sells(audited_pool)


# --- the end of the ledger ---


@pytest.mark.parametrize("entry_id", ["*", "1-5", "7-1"])
def test_an_entry_behind_the_ledgers_end_is_removed_and_the_pool_sells_again(
    audited_pool: Pool, keys: ShardKeys, server: redis.Redis, entry_id: str
) -> None:
    found = server.xadd(keys.ledger, {"x": "y"}, id=entry_id)
    last = found.decode() if isinstance(found, bytes) else found
    state, report = audited_pool.state(), audited_pool.audit()
    expected = f"the ledger ends with {last}, beyond change 4: the pool cannot go on"
    assert details(report) == [expected]
    told = audited_pool.repair(report, yes=False)
    assert [str(one) for one in told.repairs] == [f"left: foreign write: {expected}: {COUNTED}"]
    assert audited_pool.state() == state
    done = audited_pool.repair(report, yes=True)
    assert [str(one) for one in done.repairs] == [f"mended: foreign write: {expected}: mended by entry 5"]
    assert (done.is_clean, server.xlen(keys.ledger)) == (True, 5)
    assert list(audited_pool.read_ledger())[-1].note == "ledger end"
    assert it_sells(audited_pool)
    assert audited_pool.repair(report, yes=True).done_count == 0
    server.xdel(keys.ledger, server.xadd(keys.ledger, {"x": "y"}))  # its id is left behind
    report = audited_pool.audit()
    assert not report.is_clean
    assert audited_pool.repair(report, yes=True).is_clean
    audited_pool.confirm("kept")
    assert audited_pool.audit().is_clean


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_sequence_behind_the_pools_own_entries_is_advanced_to_the_last_of_them(
    audited_pool: Pool, keys: ShardKeys, server: redis.Redis, *, is_followed: bool
) -> None:
    """Foreign entries behind them are removed."""
    server.hincrby(keys.meta, "sequence", -2)
    if is_followed:
        server.xadd(keys.ledger, {"x": "y"})
    report = audited_pool.audit()
    assert details(report)[0].endswith("beyond change 2: the pool cannot go on")
    with RedisStore(server) as other:  # for this process, which has seen changes 3 and 4, the pool would be frozen
        done = Pool(other, audited_pool.sku).repair(report, yes=True)
    assert (done.is_clean, server.xlen(keys.ledger)) == (True, 5)
    assert done.repairs[0].detail.endswith("mended by entry 5")
    assert it_sells(audited_pool)


def test_an_entry_that_looks_like_the_pools_own_is_neither_counted_nor_removed(
    audited_pool: Pool, keys: ShardKeys, server: redis.Redis
) -> None:
    fields = ("kind", "confirmed", "at_us", "1", "lines", "kept\t2\t0", "chain", "0123456789abcdef")
    server.execute_command("XADD", keys.ledger, "1-5", *fields)
    done = audited_pool.repair(audited_pool.audit(), yes=True)
    assert (done.done_count, server.xlen(keys.ledger)) == (0, 5)
    assert done.repairs[0].detail.endswith(
        "cannot be mended: a later entry looks like the pool's own, and does not follow its last change"
    )


class Damaged(Shop):
    """A pool of ten units of which two are reserved and three sold, with two restocks and a limit per customer."""

    def sell_a_little(self) -> None:
        self.open(10, 2, limit_per_customer=9)
        self.reserve("kept", 2, customer_id="ann")
        self.grant("sold", 3, customer_id="bob")
        self.confirm("sold")
        self.restock(4, "r1")
        self.withdraw(1, "w1")

    @property
    def sequence(self) -> int:
        return self.state().sequence

    def spoil(self, kind: NumberKind, name: str, value: int) -> None:
        answer = self.side.execute(op.MendNumber(self.sku, kind, name, self.sequence, value))
        assert isinstance(answer, Mended), answer

    def rewrite(self, order_id: str, raw: str | None) -> None:
        """Write any record; its hold goes with it."""
        seen = self.inspected(order_id).raw
        answer = self.side.execute(op.MendRecord(self.sku, "order", order_id, self.sequence, seen, raw, LONG_MS))
        assert isinstance(answer, Mended), answer

    def rewrite_change(self, change_id: str, seen: str | None, note: str | None) -> None:
        answer = self.side.execute(op.MendRecord(self.sku, "change", change_id, self.sequence, seen, note, 0))
        assert isinstance(answer, Mended), answer

    def inspected(self, order_id: str) -> Inspected:
        return self.side.execute(op.InspectOrders(self.sku, (order_id,)))[0]

    def audit(self) -> AuditReport:
        return self.side.run(audit_plan(self.sku))[0]

    def repair(self, report: AuditReport, *, yes: bool = True) -> RepairReport:
        return self.side.run(repair_plan(report, LONG_MS, yes=yes))

    def mended(self, expected: list[tuple[str, str | None, str]]) -> list[Repair]:
        """Audit, expect this drift, repair it; nothing may be left, and nothing to do for a second repair."""
        report = self.audit()
        assert [(drift.kind, drift.order_id, drift.about) for drift in report.drift] == expected
        before = self.sequence
        told = self.repair(report, yes=False)
        assert [repair.is_done for repair in told.repairs] == [False] * len(expected)
        assert (self.sequence, told.after.drift) == (before, report.drift)
        done = self.repair(report)
        assert [repair.is_done for repair in done.repairs] == [True] * len(expected)
        assert done.is_clean
        after = self.sequence
        again = self.repair(report)
        assert again.done_count == 0
        assert all(repair.detail.endswith("there is nothing left to mend") for repair in again.repairs)
        assert self.sequence == after
        assert {entry.kind for entry in self.ledger(before)} == {"repaired"}
        return list(done.repairs)


@pytest.fixture
def audited_shop(side: Side) -> Iterator[Damaged]:
    audited_shop = Damaged(side, side.name())
    audited_shop.sell_a_little()
    audited_shop.check_books()
    yield audited_shop
    audited_shop.check_books()


def test_segments_and_customers_are_mended_each_by_its_difference(audited_shop: Damaged) -> None:
    before = audited_shop.state().stock
    audited_shop.spoil("segment", "0", 40)
    audited_shop.spoil("segment", "1", 0)
    audited_shop.mended([("foreign write", None, "sum"), *[("foreign write", None, "segment")] * 2])
    assert audited_shop.state().stock == before
    for customer_id, units in (("ann", 0), ("bob", 8), ("eve", 1)):
        audited_shop.spoil("customer", customer_id, units)
    audited_shop.mended([("foreign write", None, "customer")] * 3)
    assert audited_shop.side.execute(op.ReadCustomers(audited_shop.sku, ("ann", "bob", "eve", "zoe")))[1] == (
        2,
        3,
        0,
        0,
    )


def test_a_lost_record_is_written_again_with_its_hold(audited_shop: Damaged) -> None:
    audited_shop.reserve("other", 1, customer_id="cy")  # a pool that lost all its records is frozen
    before = audited_shop.record("kept"), audited_shop.record("sold")
    audited_shop.rewrite("kept", None)
    audited_shop.rewrite("sold", None)
    repairs = audited_shop.mended([("lost", "kept", "order"), ("lost", "sold", "order")])
    assert [repair.order_id for repair in repairs] == ["kept", "sold"]
    kept, sold = audited_shop.record("kept"), audited_shop.record("sold")
    assert before[0] is not None
    assert kept is not None
    assert (kept.state, kept.quantity, kept.parts, kept.customer_id) == ("reserved", 2, before[0].parts, "ann")
    assert kept.hold_until_ms is not None
    assert sold is not None
    assert (sold.state, sold.quantity, sold.hold_until_ms, sold.holder_id) == ("confirmed", 3, None, None)
    audited_shop.cancel("kept")


def test_a_record_that_was_changed_is_as_the_ledger_says_again(audited_shop: Damaged) -> None:
    """And one from nowhere is removed with its hold."""
    before = audited_shop.inspected("sold").raw
    assert before is not None
    audited_shop.rewrite("sold", before.replace("\t3\t", "\t5\t", 1))
    audited_shop.mended([("foreign write", "sold", "order")])
    assert audited_shop.inspected("sold").raw == before
    audited_shop.rewrite("stray", "r\t3\t0\t4")
    audited_shop.mended([("foreign write", "stray", "order")])
    assert audited_shop.inspected("stray") == Inspected("stray", None, None)


def test_notes_of_restocks_are_mended(audited_shop: Damaged) -> None:
    audited_shop.rewrite_change("r1", "restocked 4 5", None)
    audited_shop.rewrite_change("w1", "withdrawn 1 6", "withdrawn 7 6")
    audited_shop.rewrite_change("r9", None, "restocked 1 3")
    audited_shop.mended([("lost", None, "change"), *[("foreign write", None, "change")] * 2])
    assert dict(audited_shop.side.execute(op.ScanKey(audited_shop.sku, "changes", 0))[1]) == {
        "r1": "restocked 4 5",
        "w1": "withdrawn 1 6",
    }
    assert getattr(audited_shop.restock(4, "r1"), "replay", None) is True


def test_a_number_is_mended_by_what_it_should_be_now(audited_shop: Damaged) -> None:
    state = audited_shop.state()
    audited_shop.spoil("total", "reserved", 50)
    after = audited_shop.sequence
    audited_shop.reserve("later", 1, customer_id="ann")
    audited_shop.cancel("kept")
    audited_shop.reserve("more", 3, customer_id="bob")
    audited_shop.confirm("more")
    for name in ("available", "reserved", "confirmed", "restocked", "withdrawn"):
        right = op.MendNumber(audited_shop.sku, "total", name, after, getattr(state, name))
        assert isinstance(audited_shop.side.execute(right), Mended if name == "reserved" else Sound)
        assert audited_shop.side.execute(right) == Sound()
    for segment, units in enumerate(state.stock):
        assert (
            audited_shop.side.execute(op.MendNumber(audited_shop.sku, "segment", str(segment), after, units)) == Sound()
        )
    for customer_id, units in (("ann", 2), ("bob", 3)):
        assert (
            audited_shop.side.execute(op.MendNumber(audited_shop.sku, "customer", customer_id, after, units)) == Sound()
        )


def test_a_record_is_not_mended_once_the_ledger_has_gone_on_with_it(audited_shop: Damaged) -> None:
    """Nor is one that is neither as it was seen nor as it is wanted."""
    after, raw = audited_shop.sequence, audited_shop.inspected("kept").raw
    mend = op.MendRecord(audited_shop.sku, "order", "kept", after, "c\t1\t0\t2", None, 1)
    assert audited_shop.side.execute(mend) == Differing()
    assert (
        audited_shop.side.execute(op.MendRecord(audited_shop.sku, "order", "kept", after, "c\t1\t0\t2", raw, 1))
        == Sound()
    )
    assert audited_shop.inspected("kept").raw == raw
    audited_shop.confirm("kept")
    assert audited_shop.side.execute(op.MendRecord(audited_shop.sku, "order", "kept", after, raw, None, 1)) == Outrun()
    assert audited_shop.record("kept") is not None


def test_every_change_is_one_entry_with_its_units_segment_and_token(shop: Shop) -> None:
    shop.open(6, 3)
    began_us = shop.now_us()
    first = shop.granted("a", 3, holder_id="h").fencing_token
    shop.let_lease_lapse("a", "h")
    second = shop.granted("a", 3, holder_id="second").fencing_token
    shop.check_tokens(began_us, first, second)
    shop.confirm("a")
    shop.reserved("b", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    shop.expire("b")
    shop.reserved("c")
    shop.cancel("c")
    shop.grant("d", 4, keep_refusal=True)
    entries = shop.ledger()
    units = ((0, 2), (1, 1))
    at = [entry.at_us for entry in entries]
    assert [replace(entry, chain="") for entry in entries] == [
        LedgerEntry(1, 1, "opened", at[0], None, 6, ((0, 2), (1, 2), (2, 2)), None, None, None, "3"),
        LedgerEntry(1, 2, "reserved", at[1], "a", 3, units, 0, first),
        LedgerEntry(1, 3, "granted", at[2], "a", 3, units, 1, second),
        LedgerEntry(1, 4, "confirmed", at[3], "a", 3, units, 1, second),
        LedgerEntry(1, 5, "reserved", at[4], "b", 2, ((1, 1), (2, 1)), 1, None),
        LedgerEntry(1, 6, "expired", at[5], "b", 2, ((1, 1), (2, 1)), 1, None),
        LedgerEntry(1, 7, "reserved", at[6], "c", 1, ((2, 1),), 2, None),
        LedgerEntry(1, 8, "cancelled", at[7], "c", 1, ((2, 1),), 2, None),
        LedgerEntry(1, 9, "refused", at[8], "d", 4, (), None, None),
    ]
    assert at == sorted(at)


def test_what_changes_nothing_leaves_no_entry(shop: Shop) -> None:
    shop.open(6, 1)
    shop.granted("a", 3, holder_id="h")
    shop.grant("a", 3, holder_id="h")
    shop.grant("a", 3, holder_id="second")
    shop.grant("b")
    shop.renew("a", holder_id="h")
    shop.expire("a")
    shop.cancel("a", "second")
    shop.open(6, 1)
    shop.grant("c", 9)
    assert shop.story() == [("opened", None), ("reserved", "a")]
    assert shop.state().sequence == 2


def test_opening_again_says_what_is_there(pool: Pool) -> None:
    before = pool.state()
    assert pool.open(stock=8, segments=2) == AlreadyOpen(before)
    assert isinstance(pool.open(stock=8, segments=2, profile="memory"), AlreadyOpen)
    with pytest.raises(PoolDiffers, match=f"^pool '{pool.sku}' is open already, with stock 8 .*: nothing is") as caught:
        pool.open(stock=5, segments=5, limit_per_customer=3, epoch=2, profile="replicated:1")
    assert str(caught.value).endswith(" with restock, withdraw, resize or assign, or use another sku")
    assert caught.value.differing == (
        "stock 8 instead of 5",
        "segments 2 instead of 5",
        "limit per customer none instead of 3",
        "epoch 1 instead of 2",
        "profile memory instead of replicated:1",
    )
    assert pool.state() == before
    pool.close()
    with pytest.raises(PoolDiffers, match=r"with state closed instead of open: nothing is changed; sell from a pool"):
        pool.open(stock=8, segments=2)


def all_of(side: Side, found: Iterator[OrderRecord] | AsyncIterator[OrderRecord]) -> list[str]:
    """Return the sorted ids of the orders that a pool of either kind lists."""

    async def gathered() -> list[OrderRecord]:
        return [one async for one in cast("AsyncIterator[OrderRecord]", found)]

    records = side.wait(gathered()) if hasattr(found, "__aiter__") else list(found)  # type: ignore[attr-defined]  # of the asynchronous side
    return sorted(one.order_id for one in records)


def test_the_orders_of_a_pool_are_read_by_id_and_by_state(side: Side, pool: Pool) -> None:
    pool.reserve("a", quantity=2, customer_id="ann")
    pool.reserve_many([Order("b"), Order("c")])
    pool.confirm("a")
    pool.cancel("c")
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.customer_id) == ("confirmed", 2, "ann")
    assert pool.order("never") is None
    assert all_of(side, pool.orders(state="confirmed")) == ["a"]
    assert all_of(side, pool.orders(state="reserved")) == ["b"]
    assert all_of(side, pool.orders()) == ["a", "b", "c"]
    assert pool.available() == 5
    with pytest.raises(InvalidInput, match=r"^state='sold' is not one of 'reserved', 'confirmed', "):
        all_of(side, pool.orders(state="sold"))  # type: ignore[arg-type]  # what is tested


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


def test_a_changed_record(plain_redis_side: Side) -> None:
    report = report_of(plain_redis_side, lambda server, keys: with_state(server, keys, "sold", "r"))
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("foreign write", "sold")]
