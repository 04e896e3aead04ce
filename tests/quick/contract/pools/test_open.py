"""Pools that are opened, resized, restocked and closed."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import ChangeMismatch, InvalidInput, LayoutUnknown, PoolMissing
from segmented.models import STOCK_MAX, UNITS_MAX, AlreadyOpen, Busy, Closed, Order, Renewed, Restocked, TooFew
from tests.fixtures.stores import Side
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.pools.shop import LONG_MS, Shop
from tests.support.contract.shards.sharding import sharded
from tests.support.paths import ROOT


def test_the_largest_stock_is_counted_to_the_unit(shop: Shop) -> None:
    shop.open(STOCK_MAX, 3)
    assert shop.state().stock == (333_333_333_334, 333_333_333_333, 333_333_333_333)
    assert shop.granted("a", 1_000_000_000).parts == ((0, 1_000_000_000),)
    shop.confirm("a")
    assert shop.totals() == (999_000_000_000, 0, 1_000_000_000)


def test_a_later_epoch_is_in_every_answer_and_entry_and_not_in_the_fencing_token(shop: Shop) -> None:
    shop.open(5, 2, epoch=3)
    assert shop.state().epoch == 3
    began_us = shop.now_us()
    grants = [shop.granted(order_id) for order_id in "ab"]
    shop.check_tokens(began_us, *(granted.fencing_token for granted in grants))
    assert [granted.epoch for granted in grants] == [3, 3]
    assert [(entry.epoch, entry.sequence) for entry in shop.ledger()] == [(3, 1), (3, 2), (3, 3)]


def test_an_operation_on_a_pool_that_is_not_open_says_which_is_missing(side: Side) -> None:
    operations: tuple[op.Operation[Any], ...] = (
        op.ReadPool("nowhere"),
        op.Reserve("nowhere", Order("a", 1), 1_000),
        op.ReserveMany("nowhere", (Order("a", 1),), 1_000),
        op.Grant("nowhere", Order("a", 1), "h", 1_000, 1_000, keep_refusal=False),
        op.RenewGrant("nowhere", "a", "h", 1_000, 1_000),
        op.Confirm("nowhere", "a"),
        op.Cancel("nowhere", "a"),
        op.Expire("nowhere", "a"),
        op.SettleMany("nowhere", "cancelled", ("a",)),
        op.ListDue("nowhere", 10),
        op.ExpireDue("nowhere", 10),
        op.Restock("nowhere", "r", 1),
        op.Withdraw("nowhere", "w", 1),
        op.Resize("nowhere", 2),
        op.ClosePool("nowhere"),
        op.ReadLedger("nowhere", 0, 10),
        op.TrimLedger("nowhere", 0),
        op.NoteRelayed("nowhere", None),
    )
    for operation in operations:
        with pytest.raises(PoolMissing, match=r"^pool 'nowhere' is not open") as caught:
            side.execute(operation)
        assert caught.value.sku == "nowhere", operation
    assert side.execute(op.ReadOrders("nowhere", ("a", "b"))) == (None, None)
    assert side.execute(op.ScanOrders("nowhere", 0)) == (0, ())


def test_free_units_are_split_evenly(shop: Shop) -> None:
    shop.open(10, 3)
    splits = {5: (2,) * 5, 3: (4, 3, 3), 1: (10,), 4: (3, 3, 2, 2), 12: (1,) * 10 + (0,) * 2}
    for sequence, (count, stock) in enumerate(splits.items(), start=2):
        resized = shop.resize(count)
        assert not resized.replay
        assert resized.state == shop.state()
        assert (resized.state.segment_count, resized.state.stock, resized.state.sequence) == (count, stock, sequence)
    before, entry = shop.state(), shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity, entry.note) == ("resized", None, 10, "12")
    assert entry.parts == tuple((segment, 1) for segment in range(10))
    again = shop.resize(12)
    assert again.replay
    assert again.state == before == shop.state()
    shop.close()
    assert shop.resize(4).state.is_closed


def test_holders_in_segments_that_go_away_renew_and_confirm_and_keep_others_out(shop: Shop) -> None:
    shop.open(12, 3)
    for order_id in "abc":
        shop.granted(order_id, 2)
    shop.resize(1)
    assert isinstance(shop.grant("d"), Busy)
    for order_id in "bc":
        assert isinstance(shop.renew(order_id), Renewed)
        assert shop.confirm(order_id).state == "confirmed"
        assert isinstance(shop.grant("d"), Busy)
    shop.confirm("a")
    assert shop.granted("d").segment == 0
    assert shop.totals() == (5, 1, 6)


def test_a_segment_that_comes_back_is_expected_free_when_its_old_holders_lease_ends(shop: Shop) -> None:
    shop.open(12, 2)
    shop.granted("a")
    shop.granted("b")
    shop.resize(1)
    shop.resize(2)
    free_in_ms = shop.granted("a").free_in_ms
    assert free_in_ms is not None
    assert LONG_MS - 30_000 < free_in_ms <= LONG_MS


def test_a_second_delivery_takes_over_an_order_whose_segment_went_away(shop: Shop) -> None:
    shop.open(12, 4)
    *_, first = (shop.granted(order_id, 3, holder_id="first") for order_id in "abcd")
    assert first.segment == 3
    shop.let_lease_lapse("d", "first")
    shop.confirm("a")
    shop.resize(2)
    second = shop.granted("d", 3, holder_id="second")
    assert (second.segment, second.replay, second.parts) == (0, True, ((3, 3),))
    assert second.fencing_token > first.fencing_token
    shop.cancel("d")
    assert shop.state().stock == (0, 3)


def test_a_restock_is_split_evenly_and_told(shop: Shop) -> None:
    shop.open(6, 3)
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=11, replay=False)
    state = shop.state()
    assert (state.stock, state.available, state.opened, state.restocked, state.stocked) == ((4, 4, 3), 11, 6, 5, 11)
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity) == ("restocked", "r1", 5)
    assert entry.parts == ((0, 2), (1, 2), (2, 1))
    shop.reserved("r1", 4)  # an order may have the same id
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=7, replay=True)
    assert (shop.totals(), shop.state().restocked) == ((7, 4, 0), 5)
    shop.resize(5)
    assert shop.state().stock == (2, 2, 1, 1, 1)
    shop.restock(2, "r2")
    assert shop.state().stock == (3, 3, 1, 1, 1)


def test_an_id_counts_for_one_change(shop: Shop) -> None:
    shop.open(6, 3)
    shop.restock(5, "r1")
    sentence = rf"^change 'r1' of pool '{shop.sku}' was something else before$"
    with pytest.raises(ChangeMismatch, match=sentence) as caught:
        shop.restock(4, "r1")
    assert (caught.value.sku, caught.value.change_id) == (shop.sku, "r1")
    with pytest.raises(ChangeMismatch):
        shop.withdraw(5, "r1")
    shop.withdraw(5, "w1")
    with pytest.raises(ChangeMismatch):
        shop.restock(5, "w1")
    assert shop.totals() == (6, 0, 0)


def test_free_units_are_withdrawn_from_wherever_they_are(shop: Shop) -> None:
    """All or nothing; what is on hold is not free; and a refused withdrawal is a new attempt when asked again."""
    shop.open(6, 3)
    shop.reserved("a", 2)
    assert shop.withdraw(5, "w1") == TooFew("w1", 5, available=4)
    assert (shop.totals(), shop.state().sequence) == ((4, 2, 0), 2)
    shop.cancel("a")
    for replay in (False, True):
        assert shop.withdraw(5, "w1") == Restocked("w1", 5, sequence=4, available=1, replay=replay)
    state = shop.state()
    assert (state.available, state.withdrawn, state.stocked, sum(state.stock)) == (1, 5, 1, 1)
    assert (shop.ledger()[-1].kind, sum(units for _, units in shop.ledger()[-1].parts)) == ("withdrawn", 5)


def test_a_cancelled_order_returns_to_a_pool_whose_stock_was_withdrawn(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 4)
    shop.withdraw(2, "w1")
    shop.cancel("a")
    assert (shop.totals(), shop.state().stocked) == ((4, 0, 0), 4)


def test_a_closed_pool_is_not_restocked_but_answers_a_repeat(shop: Shop) -> None:
    shop.open(6, 3)
    shop.restock(5, "r1")
    shop.close()
    assert shop.restock(5, "r2") == Closed("r2")
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=11, replay=True)
    with pytest.raises(ChangeMismatch):
        shop.restock(6, "r1")
    assert isinstance(shop.withdraw(11, "w1"), Restocked)


def test_a_pool_is_never_given_more_units_than_a_script_can_count(shop: Shop) -> None:
    shop.open(6, 3)
    most = UNITS_MAX - 6
    assert isinstance(shop.restock(most - 1, "r1"), Restocked)
    before = shop.state()
    with pytest.raises(InvalidInput, match=r"^2 units are too many to restock .*, 1 more is possible$"):
        shop.restock(2, "r2")
    assert shop.state() == before
    assert isinstance(shop.withdraw(before.available - 1, "w1"), Restocked)
    with pytest.raises(InvalidInput):  # `restocked` is a total, too
        shop.restock(2, "r2")
    assert isinstance(shop.restock(1, "r3"), Restocked)
    assert shop.restock(most - 1, "r1").replay  # type: ignore[union-attr]  # a repeat is answered, not refused
    assert (shop.state().available, shop.state().stocked) == (2, 2)


def test_closing_again_changes_nothing(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    closed = shop.close()
    assert (closed.replay, closed.state.is_closed, closed.state.sequence) == (False, True, 3)
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity, entry.parts) == ("closed", None, 5, ())
    again = shop.close()
    assert again.replay
    assert again.state == closed.state == shop.state()
    opened = shop.open(99, 9)
    assert isinstance(opened, AlreadyOpen)
    assert opened.state.is_closed


def test_new_orders_are_refused_however_they_ask(shop: Shop) -> None:
    shop.open(8, 2)
    shop.close()
    assert (shop.reserve("a"), shop.reserve("a", partial=True)) == (Closed("a"), Closed("a"))
    assert (shop.grant("b"), shop.grant("b", keep_refusal=True)) == (Closed("b"), Closed("b"))
    assert shop.record("b") is None
    assert shop.totals() == (8, 0, 0)
    shop.withdraw(8, "w")
    assert shop.reserve("c") == Closed("c")  # and not sold out


MORE: dict[str, Callable[[Shop], object]] = {
    "state": lambda laid_out_shop: laid_out_shop.side.execute(op.ReadPool(laid_out_shop.sku)),
    "freeze": lambda laid_out_shop: laid_out_shop.side.execute(op.FreezePool(laid_out_shop.sku, 1)),
    "thaw": lambda laid_out_shop: laid_out_shop.side.execute(op.ThawPool(laid_out_shop.sku, 2, 0)),
    "audit": lambda laid_out_shop: laid_out_shop.side.pool(laid_out_shop.sku).audit(),
    "mend": lambda laid_out_shop: laid_out_shop.side.execute(
        op.MendNumber(laid_out_shop.sku, "total", "reserved", 1, 5)
    ),
    "relay": lambda laid_out_shop: laid_out_shop.side.execute(op.NoteRelayed(laid_out_shop.sku, None)),
    "forget": lambda laid_out_shop: laid_out_shop.side.execute(op.ForgetOrders(laid_out_shop.sku, 1, 0)),
    "dead": lambda laid_out_shop: laid_out_shop.side.execute(op.ReplayDead(laid_out_shop.sku, ("kept",))),
}


READS: Final = re.compile(r"(read|known)_(pool|numbers)\(\)|check_layout\(redis")


@pytest.fixture
def laid_out_shop(redis_side: Side) -> Shop:
    """A pool of ten units, of which one is reserved."""
    laid_out_shop = Shop(redis_side, redis_side.name())
    laid_out_shop.open(10, 4)
    laid_out_shop.reserved("kept")
    return laid_out_shop


def everything(laid_out_shop: Shop) -> dict[str, object]:
    raw = laid_out_shop.side.raw()
    return {name: raw.dump(name) for name in laid_out_shop.keys.listed()}


def test_a_pool_of_another_layout_is_neither_read_nor_changed(laid_out_shop: Shop) -> None:
    asked = [
        *((change, "2") for change in CHANGES | MORE),
        *(("reserve", said) for said in ("0", "1.0", "", "two words")),
    ]
    for change, layout in asked:
        laid_out_shop.side.raw().hset(laid_out_shop.keys.meta, "layout", layout)
        before = everything(laid_out_shop)
        with pytest.raises(LayoutUnknown) as error:
            (CHANGES | MORE)[change](laid_out_shop)
        found = layout if layout.isalnum() else "?"
        assert (error.value.sku, error.value.found, error.value.known) == (laid_out_shop.sku, found, "1"), (
            change,
            layout,
        )
        assert everything(laid_out_shop) == before, (change, layout)


def test_every_script_that_changes_a_pool_reads_its_layout_first() -> None:
    scripts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "segmented" / "protocol").rglob("*.lua")}
    changing = {
        path.name: text
        for path, text in scripts.items()
        if "-- uses shared/pool.lua" in text and "no-writes" not in text.partition("\n")[0]
    }
    assert len(changing) > 20
    assert {name for name, text in changing.items() if not READS.search(text)} == set()


FLAGS: dict[str, Callable[[Any, object], object]] = {
    "partial of reserve": lambda pool, flag: pool.reserve("a", partial=flag),
    "partial of reserve_many": lambda pool, flag: pool.reserve_many([Order("a", 1)], partial=flag),
    "partial of grant": lambda pool, flag: pool.grant("a", timeout=0, partial=flag),
    "keep_refusal": lambda pool, flag: pool.grant("a", timeout=0, keep_refusal=flag),
    "fair": lambda pool, flag: pool.grant("a", timeout=0, fair=flag),
}
IN_ONE_SLOT: dict[str, Callable[[Any, object], object]] = {
    "yes": lambda pool, flag: pool.repair(pool.audit(), yes=flag),
}
LISTS: dict[str, Callable[[Any], object]] = {
    "reserve_many(None)": lambda pool: pool.reserve_many(None),
    "reserve_many(7)": lambda pool: pool.reserve_many(7),
    "submit_many(None)": lambda pool: pool.submit_many(None),
    "confirm_many(None)": lambda pool: pool.confirm_many(None),
    "confirm_many([[]])": lambda pool: pool.confirm_many([[]]),
    "cancel_many([None])": lambda pool: pool.cancel_many([None]),
}


def refused(call: Callable[[], object], sentence: str, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.match(sentence), name


def test_a_flag_is_true_or_false(side: Side) -> None:
    pool = side.pool(side.name())
    for flag in ("no", 1, None):
        refused(lambda: pool.open(stock=9, segments=2, gated=flag), f"^gated={flag!r} is not True or False$", "gated")  # type: ignore[arg-type]  # noqa: B023  # bad on purpose; called at once
    assert not pool.open(stock=9, segments=2).state.gated
    for name, call in (FLAGS | IN_ONE_SLOT).items():
        for flag in ("no", 1, None):
            said = f"^{name.partition(' ')[0]}={flag!r} is not True or False$"
            refused(lambda: call(pool, flag), said, name)  # noqa: B023  # called at once
    assert pool.state().sequence == 1


@pytest.mark.parametrize("in_shards", [False, True], ids=["in one slot", "in shards"])
def test_what_is_no_list_of_orders_is_refused_in_a_sentence(side: Side, *, in_shards: bool) -> None:
    pool: Any = (sharded if in_shards else type(side).pool)(side, side.name())
    pool.open(stock=9, segments=4, **({"shards": 2} if in_shards else {}))
    for name, call in LISTS.items():
        refused(lambda: call(pool), r"is not (a list|text)$", name)  # noqa: B023  # called at once
    assert pool.state().available == 9
