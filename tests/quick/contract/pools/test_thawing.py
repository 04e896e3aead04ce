"""Thaws, and what is forgotten, noted and trimmed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, cast

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolDrifted, StoreRefused, WrongKind
from segmented.models import LimitReached, Reserved, Trimmed
from segmented.protocol.archive import Forgot
from segmented.stock import AuditReport
from segmented.stock.audit import audit_plan
from segmented.stock.ledger import trim_plan
from segmented.stock.repair import repair_plan
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import LONG_MS, Shop, frozen, verified


@pytest.fixture
def shop(side: Side) -> Shop:
    return Shop(side, side.name())


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return Shop(redis_side, redis_side.name())


Decided = tuple[tuple[str, Literal["confirmed", "cancelled"]], ...]


def contents(shop: Shop) -> list[bytes | None]:
    raw = shop.side.raw()
    return [raw.dump(name) for name in shop.keys.listed()]


def test_a_customer_whose_order_the_database_voided_may_buy_again(shop: Shop) -> None:
    shop.open(10, 4, gated=True, limit_per_customer=2)
    for order_id, customer_id in (("voided", "ann"), ("sold", "bob")):
        assert isinstance(shop.reserve(order_id, 2, customer_id=customer_id), Reserved)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    decided: Decided = (("voided", "cancelled"), ("sold", "confirmed"))
    ending = op.ThawPool(shop.sku, 2, 2, 10, is_stored=True, decided=(*decided, *decided), is_last=False)
    assert [shop.side.execute(ending) for _ in range(2)] == [None, None]
    assert shop.side.execute(op.ThawPool(shop.sku, 2, 2, 10, is_stored=True)) is not None
    verified(shop.side, shop.sku, epoch=2)
    assert isinstance(shop.reserve("again", 2, customer_id="ann"), Reserved)
    for customer_id in ("ann", "bob"):
        assert isinstance(shop.reserve("more", 1, customer_id=customer_id), LimitReached)
    assert shop.side.pool(shop.sku).audit().is_clean


def test_no_pool_is_thawed_with_what_is_no_number_of_units(shop: Shop) -> None:
    frozen(shop)
    before = shop.state()
    bad: list[tuple[Any, Any]] = [(-1, None), (1.5, None), (10**15, None), (0, -1), (0, 2.5), (True, 10)]
    for sold, stocked in bad:
        with pytest.raises(InvalidInput, match=r" (is not a whole number|must be between 0 and [\d,]+)$"):
            shop.side.pool(shop.sku).thaw(sold=sold, stocked=stocked)
    with pytest.raises(InvalidInput, match=r"^5 sold units are more than the 4 units that pool"):
        shop.side.pool(shop.sku).thaw(sold=5, stocked=4)
    assert shop.state() == before


DAMAGED: list[tuple[str, str | None]] = [
    *((field, said) for field in ("sent", "received", "lost") for said in ("x", "", "1.5", "1e400", "9" * 23)),
    ("sent", "-5"),
    ("received", "-5"),
    ("chain", None),
    ("reserved", "-5"),
    ("segment_count", "0"),
    ("segment_count", "-3"),
    ("segment_count", "99999999999"),
    ("sequence", "9" * 20),
    ("sequence", "-7"),
    ("epoch", "-2"),
    ("epoch", "9" * 20),
    ("opened", "9" * 20),
    ("confirmed", "9" * 20),
]


def test_a_thaw_with_a_damaged_number_is_refused_and_nothing_changes(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    raw = shop.side.raw()
    meta: Any = raw.hgetall(shop.keys.meta)
    for field, said in DAMAGED:
        raw.hset(shop.keys.meta, field, said) if said is not None else raw.hdel(shop.keys.meta, field)
        before = contents(shop)
        with pytest.raises(StoreRefused) as caught:
            shop.side.execute(op.ThawPool(shop.sku, 2, 4))
        assert caught.match("do not add up"), (field, said)
        assert contents(shop) == before, (field, said)
        raw.delete(shop.keys.meta)
        raw.hset(shop.keys.meta, mapping=meta)


def test_a_thaw_that_finds_a_key_of_another_type_changes_nothing(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    shop.side.raw().set(shop.keys.dead, "x")
    before = contents(shop)
    with pytest.raises(WrongKind):
        shop.side.execute(op.ThawPool(shop.sku, 2, 3, decided=(("kept", "confirmed"),)))
    assert contents(shop) == before


def test_a_pool_is_thawed_above_the_epoch_of_its_ledger(redis_shop: Shop) -> None:
    shop = frozen(redis_shop)
    shop.side.raw().xadd(shop.keys.ledger, {"a": "1"}, id="9-1")
    before = contents(shop)
    with pytest.raises(InvalidInput, match=r"is in epoch 9, which does not fit epoch 9"):
        shop.side.execute(op.ThawPool(shop.sku, 9, 4))
    with pytest.raises(InvalidInput, match=r"which does not fit epoch 1000000000000000"):
        shop.side.execute(op.ThawPool(shop.sku, 10**15, 4))
    assert contents(shop) == before
    pool = shop.side.pool(shop.sku)
    assert pool.thaw(sold=4).state.epoch == 10
    assert isinstance(shop.reserve("next"), Reserved)
    assert pool.audit().is_clean


# --- the operator's number is always usable ---


def test_reservations_beyond_the_operators_number_are_cancelled_newest_first(shop: Shop) -> None:
    shop.open(10, 4)
    for order_id in ("first", "second", "third"):
        shop.reserved(order_id, 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    pool = shop.side.pool(shop.sku)
    thawed = pool.thaw(sold=7)
    state = thawed.state
    assert (thawed.cancelled_count, state.confirmed, state.reserved, state.available) == (2, 7, 2, 1)
    assert [shop.confirm(order_id).state for order_id in ("first", "second", "third")] == [
        "confirmed",
        "cancelled",
        "cancelled",
    ]
    assert isinstance(shop.reserve("new"), Reserved)
    report = pool.audit()
    assert (report.is_clean, report.drift, report.oversold) == (True, (), 0)


def test_a_restock_that_was_forgotten_is_named_with_the_units_ever_stocked(shop: Shop) -> None:
    frozen(shop)
    pool = shop.side.pool(shop.sku)
    sentence = rf"^11 sold units are more than the 10 units that pool '{shop.sku}' ever had: check the number, or give"
    with pytest.raises(InvalidInput, match=sentence):
        pool.thaw(sold=11)
    assert (pool.state().frozen, pool.state().reserved) == ((1, 4), 2)
    thawed = pool.thaw(sold=11, stocked=15)
    state = thawed.state
    assert (thawed.cancelled_count, state.stocked, state.confirmed, state.reserved) == (0, 15, 11, 2)
    assert state.available == 2
    assert pool.audit().is_clean


def test_a_thaw_counts_the_reserved_units_of_the_orders_and_not_the_pools_number(redis_side: Side) -> None:
    for said in ("-5", "0", "9", "3"):
        shop = frozen(Shop(redis_side, redis_side.name()))
        shop.side.raw().hset(shop.keys.meta, "reserved", said)
        pool = shop.side.pool(shop.sku)
        state = pool.thaw(sold=4).state
        assert (state.confirmed, state.reserved, state.available) == (4, 2, 4), said
        report = pool.audit()
        assert (report.is_clean, report.drift, report.oversold) == (True, (), 0), said


def test_a_count_that_another_thaw_has_overtaken_is_refused_and_nothing_changes(shop: Shop) -> None:
    frozen(shop)
    before = shop.state()
    with pytest.raises(InvalidInput, match=r"^another thaw of pool '.*' cancels orders: read its state and try again$"):
        shop.side.execute(op.ThawPool(shop.sku, 2, 4, reserved=(3, 2)))
    assert shop.state() == before


class ForgetfulShop(Shop):
    def trimmed(self) -> int:
        """Relay and trim all, and return the last change that may be forgotten."""
        for _ in range(2):
            sequence = self.state().sequence
            self.side.execute(op.NoteRelayed(self.sku, (1, sequence)))
            self.side.run(trim_plan(op.TrimLedger(self.sku, 0, relayed_only=True)))
        return self.side.execute(op.ReadLedgerStart(self.sku)) - 1

    def forget(self, up_to: int, *orders: tuple[str, int], notice_ms: int = 0) -> Forgot:
        return self.side.execute(op.ForgetOrders(self.sku, up_to, notice_ms, orders))


@pytest.fixture
def forgetful_shop(side: Side) -> ForgetfulShop:
    """A gated pool of ten units: change 2 to 5 sell "a" with 2 units and void "b", change 6 reserves "r"."""
    forgetful_shop = ForgetfulShop(side, side.name())
    forgetful_shop.open(10, 4, gated=True)
    forgetful_shop.reserve("a", 2)
    forgetful_shop.reserve("b", 3)
    side.execute(op.Confirm(forgetful_shop.sku, "a", None, decided=True))
    side.execute(op.Cancel(forgetful_shop.sku, "b", decided=True))
    forgetful_shop.reserve("r", 1)
    return forgetful_shop


def test_named_records_go_and_their_sold_units_count_as_lost(forgetful_shop: ForgetfulShop) -> None:
    up_to = forgetful_shop.trimmed()
    assert forgetful_shop.forget(up_to) == Forgot(0, 0, 0, 0)
    assert forgetful_shop.forget(up_to, ("a", 4), ("a", 4), ("b", 5), ("r", 6), ("nobody", 1)) == Forgot(2, 2, 5, 0)
    state = forgetful_shop.state()
    assert (state.forgotten, state.lost, state.confirmed, state.reserved, state.order_count) == (2, 2, 2, 1, 1)
    assert forgetful_shop.forget(up_to, ("a", 4), ("b", 5)) == Forgot(0, 0, 2, 0)


def test_a_record_whose_last_change_is_another_stays(forgetful_shop: ForgetfulShop) -> None:
    up_to = forgetful_shop.trimmed()
    forgetful_shop.forget(up_to)
    assert forgetful_shop.forget(up_to, ("a", 2), ("b", 4)) == Forgot(0, 0, 2, 0)
    assert forgetful_shop.forget(4, ("b", 5), ("a", 4)) == Forgot(1, 2, 2, 0)
    assert forgetful_shop.state().order_count == 2


def test_an_id_that_can_be_used_again_goes_and_can_be_used_again(forgetful_shop: ForgetfulShop) -> None:
    forgetful_shop.reserve("gone", 1)
    forgetful_shop.side.execute(op.Cancel(forgetful_shop.sku, "gone", decided=True, unheard=True))
    up_to = forgetful_shop.trimmed()
    forgetful_shop.forget(up_to)
    assert forgetful_shop.forget(up_to, ("gone", 8)) == Forgot(1, 0, 1, 0)
    forgetful_shop.reserve("gone", 2)
    assert (forgetful_shop.state().reserved, forgetful_shop.state().available) == (3, 5)
    forgetful_shop.side.execute(op.Confirm(forgetful_shop.sku, "gone", None, decided=True))
    assert forgetful_shop.state().confirmed == 4


def test_nothing_goes_before_the_notice_is_over(forgetful_shop: ForgetfulShop) -> None:
    up_to = forgetful_shop.trimmed()
    assert forgetful_shop.forget(up_to, ("a", 4), notice_ms=60_000) == Forgot(0, 0, 0, 60_000)
    left = forgetful_shop.forget(up_to, ("a", 4), notice_ms=60_000)
    assert (left.orders, 0 < left.wait_ms <= 60_000) == (0, True)
    assert (forgetful_shop.state().forgotten, forgetful_shop.state().order_count) == (0, 3)


def test_changes_that_are_not_relayed_and_trimmed_are_refused(forgetful_shop: ForgetfulShop) -> None:
    with pytest.raises(InvalidInput, match="its ledger was not relayed and trimmed behind them"):
        forgetful_shop.forget(1)
    up_to = forgetful_shop.trimmed()
    with pytest.raises(InvalidInput, match="its ledger was not relayed and trimmed behind them"):
        forgetful_shop.forget(up_to + 1)


class TrimmedShop(Shop):
    def trim(self, keep: int) -> Trimmed:
        return self.side.run(trim_plan(op.TrimLedger(self.sku, keep)))

    def audit(self) -> AuditReport:
        return self.side.run(audit_plan(self.sku))[0]

    def sell(self, count: int) -> None:
        """Two changes an order."""
        for _ in range(count):
            order_id = f"o{self.state().sequence}"
            self.reserve(order_id, customer_id="ann")
            self.confirm(order_id)


@pytest.fixture
def trimmed_shop(side: Side) -> Iterator[TrimmedShop]:
    """Four changes, one unit reserved and two sold, and a limit per customer."""
    trimmed_shop = TrimmedShop(side, side.name())
    trimmed_shop.open(1_000, 3, limit_per_customer=900)
    trimmed_shop.reserve("kept", 1, customer_id="bob")
    trimmed_shop.reserve("sold", 2, customer_id="ann")
    trimmed_shop.confirm("sold")
    yield trimmed_shop
    trimmed_shop.check_books()


def test_a_trim_that_keeps_nothing_leaves_a_checkpoint(trimmed_shop: TrimmedShop) -> None:
    before = trimmed_shop.state()
    for _ in range(2):
        assert trimmed_shop.trim(0) == Trimmed(5, 5, is_more_left=False)
    (entry,) = trimmed_shop.ledger()
    assert (entry.kind, entry.sequence, entry.quantity) == ("checkpoint", 5, 997)
    assert dict(entry.parts) == dict(enumerate(before.stock))
    assert entry.note.split(" ")[:-1] == ["3", "1000", "0", "0", "0", "0", "1", "2", "0"]
    assert trimmed_shop.audit().is_clean
    assert trimmed_shop.audit().first_sequence == 5
    again = trimmed_shop.reserve("sold", 2, customer_id="ann")
    assert (getattr(again, "state", None), getattr(again, "replay", None)) == ("confirmed", True)


def test_a_trim_keeps_at_least_what_it_was_told_to(trimmed_shop: TrimmedShop) -> None:
    assert trimmed_shop.trim(8) == Trimmed(1, 5, is_more_left=False)
    trimmed_shop.sell(2)
    assert trimmed_shop.trim(8) == Trimmed(1, 10, is_more_left=False)
    trimmed_shop.sell(2)
    assert trimmed_shop.trim(8) == Trimmed(5, 15, is_more_left=False)
    assert [entry.sequence for entry in trimmed_shop.ledger()] == list(range(5, 16))
    assert [entry.sequence for entry in trimmed_shop.ledger() if entry.kind == "checkpoint"] == [5, 10, 15]
    assert trimmed_shop.audit().is_clean


def test_the_sale_goes_on_after_a_trim_and_is_audited(trimmed_shop: TrimmedShop) -> None:
    trimmed_shop.trim(0)
    trimmed_shop.check_books()
    trimmed_shop.cancel("kept")
    trimmed_shop.check_books()
    trimmed_shop.sell(3)
    trimmed_shop.resize(5)
    trimmed_shop.restock(7, "r1")
    trimmed_shop.withdraw(2, "w1")
    trimmed_shop.check_books()
    trimmed_shop.trim(0)
    trimmed_shop.check_books()
    trimmed_shop.reserve("later", 3, customer_id="bob")
    trimmed_shop.check_books()
    assert trimmed_shop.audit().state.sequence == 17


def test_a_pool_whose_totals_do_not_add_up_is_not_trimmed(trimmed_shop: TrimmedShop) -> None:
    trimmed_shop.side.execute(op.MendNumber(trimmed_shop.sku, "total", "available", 4, 998))
    with pytest.raises(PoolDrifted, match="do not add up: another client wrote to it"):
        trimmed_shop.trim(0)
    trimmed_shop.side.execute(op.MendNumber(trimmed_shop.sku, "total", "available", 5, 997))
    trimmed_shop.side.execute(op.MendNumber(trimmed_shop.sku, "segment", "0", 6, 2))
    with pytest.raises(PoolDrifted):
        trimmed_shop.trim(0)
    trimmed_shop.side.run(repair_plan(trimmed_shop.audit(), LONG_MS, yes=True))
    assert trimmed_shop.trim(0).first_sequence == 9


def test_a_pool_with_a_unit_too_many_in_a_segment_and_in_the_total_is_not_trimmed(
    trimmed_shop: TrimmedShop,
) -> None:
    units = trimmed_shop.state().stock[0]
    trimmed_shop.side.execute(op.MendNumber(trimmed_shop.sku, "total", "available", 4, 998))
    trimmed_shop.side.execute(op.MendNumber(trimmed_shop.sku, "segment", "0", 5, units + 1))
    with pytest.raises(PoolDrifted, match="do not add up: another client wrote to it"):
        trimmed_shop.trim(0)
    trimmed_shop.side.run(repair_plan(trimmed_shop.audit(), LONG_MS, yes=True))
    assert trimmed_shop.state().available == 997


def test_a_closed_pool_is_trimmed_and_audited(trimmed_shop: TrimmedShop) -> None:
    trimmed_shop.close()
    trimmed_shop.trim(0)
    (entry,) = trimmed_shop.ledger()
    assert entry.note.split(" ")[:-1] == ["3", "1000", "0", "0", "0", "0", "1", "2", "1"]
    assert trimmed_shop.audit().is_clean


def test_an_order_lost_from_before_the_trim_is_missed_in_the_sum(trimmed_shop: TrimmedShop) -> None:
    trimmed_shop.trim(0)
    raw = trimmed_shop.side.execute(op.InspectOrders(trimmed_shop.sku, ("sold",)))[0].raw
    state = trimmed_shop.state().sequence
    trimmed_shop.side.execute(op.MendRecord(trimmed_shop.sku, "order", "sold", state, raw, None, 0))
    report = trimmed_shop.audit()
    assert [drift.detail for drift in report.drift] == [
        "orders from before checkpoint 5 add up to 0 units confirmed, the checkpoint says 2"
    ]
    state = trimmed_shop.state().sequence
    trimmed_shop.side.execute(op.MendRecord(trimmed_shop.sku, "order", "sold", state, None, raw, 0))


def test_a_hold_lost_before_the_trim_is_named_and_a_ledger_cut_without_a_checkpoint(plain_redis_side: Side) -> None:
    trimmed_shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    trimmed_shop.open(10, 2)
    trimmed_shop.reserved("kept", 1)
    trimmed_shop.trim(0)
    trimmed_shop.reserved("more", 1)
    plain_redis_side.raw().zrem(trimmed_shop.keys.holds, "kept")
    assert [(drift.kind, drift.order_id) for drift in trimmed_shop.audit().drift] == [("leaked hold", "kept")]
    plain_redis_side.raw().xtrim(trimmed_shop.keys.ledger, maxlen=1, approximate=False)
    assert "entry 3 is missing" in [drift.detail for drift in trimmed_shop.audit().drift]


def test_a_checkpoint_that_was_changed_breaks_the_chain(plain_redis_side: Side) -> None:
    trimmed_shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    trimmed_shop.open(10, 2)
    trimmed_shop.reserved("kept", 1)
    trimmed_shop.trim(0)
    server, key = plain_redis_side.raw(), trimmed_shop.keys.ledger
    (entry,) = cast("list[tuple[str, dict[str, str]]]", server.xrange(key))
    entry_id, fields = entry
    server.delete(key)
    fields["lines"] = fields["lines"].replace("\t9", "\t8")
    server.xadd(key, cast("dict[Any, Any]", fields), id=entry_id)
    report = trimmed_shop.audit()
    assert "entry 3 is not what was written, or follows another" in [drift.detail for drift in report.drift]


def test_ten_thousand_entries_at_most_are_deleted_in_one_step(plain_redis_side: Side) -> None:
    trimmed_shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    trimmed_shop.open(100_000, 1)
    pipeline = plain_redis_side.raw().pipeline(transaction=False)
    for index in range(2, 10_501):
        pipeline.xadd(
            trimmed_shop.keys.ledger,
            {"kind": "closed", "at_us": "1", "lines": "\t1", "chain": "x"},
            id=f"1-{index}",
        )
    pipeline.hset(trimmed_shop.keys.meta, "sequence", 10_500)
    pipeline.execute()
    first = plain_redis_side.execute(op.TrimLedger(trimmed_shop.sku, 0))
    assert (first, plain_redis_side.raw().xlen(trimmed_shop.keys.ledger)) == (
        Trimmed(10_501, 10_501, is_more_left=True),
        501,
    )
    assert plain_redis_side.execute(op.TrimLedger(trimmed_shop.sku, 0)) == Trimmed(10_501, 10_501, is_more_left=False)
    assert plain_redis_side.raw().xlen(trimmed_shop.keys.ledger) == 1


class RelayedShop(Shop):
    def note(self, *relayed: int) -> tuple[int, int]:
        return self.side.execute(op.NoteRelayed(self.sku, (relayed[0], relayed[1]) if relayed else None))

    def relayed(self) -> tuple[int, int] | None:
        return self.side.execute(op.ReadPool(self.sku)).relayed

    def trim(self, keep: int, *, relayed_only: bool = False) -> Trimmed:
        return self.side.run(trim_plan(op.TrimLedger(self.sku, keep, relayed_only)))

    def ids(self, epoch: int, after: int) -> list[tuple[int, int]]:
        page = self.side.execute(op.ReadLedger(self.sku, after, 1_000, epoch))
        return [(entry.epoch, entry.sequence) for entry in page]

    def sell(self, count: int) -> None:
        """Two changes an order."""
        for _ in range(count):
            order_id = f"o{self.state().sequence}"
            self.reserve(order_id)
            self.confirm(order_id)

    def thaw(self, sold: int) -> None:
        epoch = self.state().epoch
        self.side.execute(op.FreezePool(self.sku, epoch))
        self.side.execute(op.ThawPool(self.sku, epoch + 1, sold))


@pytest.fixture
def relayed_shop(side: Side) -> Iterator[RelayedShop]:
    """Five changes: opened, and two units sold."""
    relayed_shop = RelayedShop(side, side.name())
    relayed_shop.open(100, 3)
    relayed_shop.sell(2)
    yield relayed_shop
    assert side.run(audit_plan(relayed_shop.sku))[0].is_clean


def test_the_note_follows_the_database_and_never_moves_back(relayed_shop: RelayedShop) -> None:
    before, ledger = relayed_shop.state(), relayed_shop.ledger()
    assert relayed_shop.relayed() is None
    assert relayed_shop.note() == (1, 0)
    assert [relayed_shop.note(1, change) for change in (3, 5, 3)] == [(1, 3), (1, 5), (1, 3)]
    assert relayed_shop.note() == (1, 0)
    assert relayed_shop.relayed() == (1, 5)
    assert (replace(relayed_shop.state(), relayed=None), relayed_shop.ledger()) == (before, ledger)


def test_a_database_that_is_ahead_of_the_pool_is_refused(relayed_shop: RelayedShop) -> None:
    with pytest.raises(InvalidInput, match=r"changes up to 1-6 of the ledger .* the pool is at change 1-5"):
        relayed_shop.note(1, 6)
    with pytest.raises(InvalidInput, match=r"changes up to 2-1 of the ledger"):
        relayed_shop.note(2, 1)
    assert relayed_shop.relayed() is None


def test_a_trim_beyond_the_relayed_change_is_refused_and_changes_nothing(relayed_shop: RelayedShop) -> None:
    relayed_shop.trim(4)
    relayed_shop.note(1, 4)
    with pytest.raises(StoreRefused, match=r"was relayed up to change 1-4, so it cannot be trimmed to 1-5"):
        relayed_shop.trim(0)
    assert [entry.sequence for entry in relayed_shop.ledger()] == [1, 2, 3, 4, 5, 6]
    relayed_shop.sell(1)
    relayed_shop.note(1, 5)
    assert relayed_shop.trim(2) == Trimmed(6, 9, is_more_left=False)
    assert [entry.sequence for entry in relayed_shop.ledger()] == [6, 7, 8, 9]
    assert relayed_shop.note(1, 9) == (1, 9)
    assert relayed_shop.trim(0) == Trimmed(9, 9, is_more_left=False)


def test_a_trim_of_what_was_relayed_keeps_the_rest(relayed_shop: RelayedShop) -> None:
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(1, 6, is_more_left=False)
    relayed_shop.note(1, 3)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(1, 6, is_more_left=False)
    relayed_shop.note(1, 5)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(6, 6, is_more_left=False)
    assert [entry.sequence for entry in relayed_shop.ledger()] == [6]
    relayed_shop.sell(1)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(6, 9, is_more_left=False)
    relayed_shop.note(1, 9)
    assert relayed_shop.trim(2, relayed_only=True) == Trimmed(6, 9, is_more_left=False)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(9, 9, is_more_left=False)


def test_a_trim_of_what_was_relayed_keeps_the_rest_of_an_earlier_epoch(relayed_shop: RelayedShop) -> None:
    relayed_shop.note(1, 3)
    relayed_shop.thaw(2)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(6, 8, is_more_left=False)
    assert relayed_shop.ids(1, 0) == [(1, number) for number in range(1, 6)] + [(2, 6), (2, 7), (2, 8)]
    relayed_shop.note(1, 5)
    assert relayed_shop.trim(0, relayed_only=True) == Trimmed(6, 8, is_more_left=False)
    assert relayed_shop.ids(1, 0) == [(2, 6), (2, 7), (2, 8)]


def test_another_database_is_refused_once_entries_are_deleted(relayed_shop: RelayedShop) -> None:
    relayed_shop.note(1, 5)
    assert relayed_shop.note() == (1, 0)
    relayed_shop.trim(0)
    with pytest.raises(InvalidInput, match=r"has nothing of the ledger .* goes on with change 1-6"):
        relayed_shop.note()
    with pytest.raises(InvalidInput, match=r"has changes up to 1-4 of the ledger .* goes on with change 1-6"):
        relayed_shop.note(1, 4)
    assert relayed_shop.note(1, 5) == (1, 5)
