"""A closed pool is written as a whole, and then removed; until then it answers reads alone, and afterwards a note."""

import json
from pathlib import Path
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolArchived, PoolFrozen, PoolMissing, PoolVanished
from segmented.keys import cart_keys, shard_keys
from segmented.models import AlreadyOpen, Cart, Opened, Order, Reserved
from segmented.models.pools import Archived
from segmented.stock.archiving import FileArchive, archive_plan, lines_of, no_progress
from tests.fixtures.stores import Side
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.pools.shop import Shop


@pytest.fixture
def shop(side: Side) -> Shop:
    """A pool on each store; most tests leave nothing of it to audit."""
    return Shop(side, side.name())


@pytest.fixture
def redis_shop(redis_side: Side) -> Shop:
    return Shop(redis_side, redis_side.name())


def sold(shop: Shop, *, gated: bool = False) -> Shop:
    """Open a pool of ten units, sell one and two, cancel one, restock five, withdraw one, and close it."""
    shop.open(10, 4, gated=gated)
    for order_id, quantity in (("one", 1), ("two", 2)):
        shop.reserved(order_id, quantity)
        shop.confirm(order_id, stored=gated)
    shop.reserved("none")
    shop.cancel("none", voided=gated)
    shop.restock(5, "more")
    shop.withdraw(1, "less")
    shop.close()
    return shop


def archived(shop: Shop, file: Path) -> Archived:
    return shop.side.run(archive_plan(shop.sku, FileArchive(file), no_progress))


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(file)]


def values(file: Path, kind: str) -> dict[str, Any]:
    return {one["name"]: one["value"] for one in records(file) if one["record"] == kind}


def test_an_archive_has_every_record_of_the_pool(shop: Shop, tmp_path: Path) -> None:
    answer = archived(sold(shop), tmp_path / "sold.jsonl")
    found = records(tmp_path / "sold.jsonl")
    assert (answer.orders, answer.lines, answer.replay) == (3, len(found) - 1, False)
    assert found[0]["pools"][0]["sequence"] == 10
    assert values(tmp_path / "sold.jsonl", "orders") == {"one": "c\t1\t1\t3", "two": "c\t2\t3\t5", "none": "x\t1\t1\t7"}
    assert values(tmp_path / "sold.jsonl", "changes") == {"more": "restocked 5 8", "less": "withdrawn 1 9"}
    assert sum(map(int, values(tmp_path / "sold.jsonl", "stock").values())) == 11
    kinds = [entry["kind"] for entry in values(tmp_path / "sold.jsonl", "ledger").values()]
    assert kinds == [
        "opened",
        *["reserved", "confirmed"] * 2,
        "reserved",
        "cancelled",
        "restocked",
        "withdrawn",
        "closed",
    ]
    meta = values(tmp_path / "sold.jsonl", "meta")
    assert (meta["confirmed"], meta["available"], meta["reserved"], meta["closed"]) == ("3", "11", "0", "1")
    assert "archive" not in meta


def test_of_an_archived_pool_a_note_alone_is_left(redis_shop: Shop, tmp_path: Path) -> None:
    shop = sold(redis_shop)
    shop.side.execute(op.NotePool(shop.sku, submits=True))
    archived(shop, tmp_path / "sold.jsonl")
    raw, kept = shop.side.raw(), cart_keys(shop.sku)
    names = [*shop.keys.listed(), kept.carts, kept.unfinished, shop.keys.ledger_copy]
    assert [name for name in names if raw.exists(name)] == [shop.keys.meta]
    assert raw.hkeys(shop.keys.meta) == ["archive"]
    day_ms = 24 * 3_600_000
    assert 29 * day_ms < raw.pttl(shop.keys.meta) <= 30 * day_ms
    assert shop.sku not in shop.side.execute(op.ListOutboxes())


# --- refused ---


def test_a_pool_that_sells_is_refused_and_sells_on(shop: Shop, tmp_path: Path) -> None:
    shop.open(10, 4)
    shop.reserved("one")
    shop.confirm("one")
    with pytest.raises(InvalidInput, match=f"'{shop.sku}' is open: close it first, with 'segmented pool close"):
        archived(shop, tmp_path / "sold.jsonl")
    assert shop.reserved("two").sequence == 4
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_pool_is_refused_and_one_that_was_never_opened_is_missing(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(PoolMissing, match="is not open: "):
        archived(shop, tmp_path / "sold.jsonl")
    sold(shop)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    with pytest.raises(PoolFrozen):
        archived(shop, tmp_path / "sold.jsonl")


def test_a_pool_with_drift_is_refused_and_can_be_repaired(redis_shop: Shop, tmp_path: Path) -> None:
    shop = sold(redis_shop)
    shop.side.raw().hset(shop.keys.meta, "confirmed", "4")
    with pytest.raises(InvalidInput, match="its numbers do not follow from its ledger: see 'segmented pool audit"):
        archived(shop, tmp_path / "sold.jsonl")
    pool = shop.side.pool(shop.sku)
    assert pool.repair(pool.audit(), yes=True).is_clean
    assert archived(shop, tmp_path / "sold.jsonl").orders == 3


def test_a_name_that_is_no_text_is_refused_and_the_pool_stays_whole(plain_redis_side: Side, tmp_path: Path) -> None:
    shop = sold(Shop(plain_redis_side, plain_redis_side.name()))
    shop.side.raw().zadd(shop.keys.free, {b"\xff\xfe": 1})
    with pytest.raises(InvalidInput, match=r"the key 'free' of pool .* has a name that is not text: remove it by hand"):
        archived(shop, tmp_path / "sold.jsonl")
    assert list(tmp_path.iterdir()) == []
    assert shop.close().replay
    assert shop.totals() == (11, 0, 3)


# --- while it is archived ---


def test_a_pool_that_is_being_archived_changes_nothing(shop: Shop) -> None:
    sold(shop)
    shop.side.execute(op.BeginArchive(shop.sku))
    before = shop.state()
    for name, change in CHANGES.items():
        with pytest.raises(PoolArchived) as caught:
            change(shop)
        assert caught.match("is being archived and answers reads alone"), name
        assert shop.state() == before, name
    shop.check_books()


def test_a_cart_is_not_opened_in_a_pool_that_is_being_archived(shop: Shop) -> None:
    sold(shop)
    shop.side.execute(op.BeginArchive(shop.sku))
    with pytest.raises(PoolArchived):
        shop.side.execute(op.OpenCart(Cart("basket", [(shop.sku, 1)]), 600_000))
    assert shop.side.execute(op.ListCarts(shop.sku, 10)).count == 0


def test_nothing_is_removed_before_the_archive_is_complete(shop: Shop) -> None:
    sold(shop)
    shop.side.execute(op.BeginArchive(shop.sku))
    for removal in (op.RemoveRecords(shop.sku, "orders", ("one",)), op.RemovePool(shop.sku, 1_000)):
        with pytest.raises(Exception, match="archive it again"):
            shop.side.execute(removal)
    assert shop.state().order_count == 3


def test_the_first_complete_archive_counts(shop: Shop) -> None:
    sold(shop)
    shop.side.execute(op.BeginArchive(shop.sku))
    for digest, target in (("ab", "/first file"), ("cd", "/second")):
        found = shop.side.execute(op.CompleteExport(shop.sku, digest, target))
        assert (found.digest, found.target, found.epoch) == ("ab", "/first file", 1)
    shop.side.execute(op.AbandonArchive(shop.sku))  # too late
    assert shop.side.execute(op.BeginArchive(shop.sku)).digest == "ab"


def test_an_archive_of_a_server_that_was_replaced_meanwhile_does_not_count(redis_shop: Shop) -> None:
    shop = sold(redis_shop)
    shop.side.execute(op.BeginArchive(shop.sku))
    shop.side.raw().hset(shop.keys.meta, "archive", "exporting 0123456789abcdef")
    with pytest.raises(Exception, match="changed while the pool was read: archive it again"):
        shop.side.execute(op.CompleteExport(shop.sku, "ab", "/file"))


# --- afterwards ---


def test_an_archived_pool_says_where_its_archive_is(shop: Shop, tmp_path: Path) -> None:
    archived(sold(shop), tmp_path / "so ld.jsonl")
    for name, change in CHANGES.items():
        with pytest.raises(PoolArchived) as caught:
            change(shop)
        assert name == "open" or caught.match(rf"to {tmp_path}/so ld.jsonl: open it again in epoch 2 or a later"), name
    reads = (shop.state, shop.ledger, lambda: shop.record("one"), lambda: shop.side.execute(op.ReadCart(shop.sku, "b")))
    for read in reads:
        with pytest.raises(PoolArchived, match="was archived"):
            read()


def test_an_archived_pool_is_opened_again_in_a_later_epoch_alone(shop: Shop, tmp_path: Path) -> None:
    archived(sold(shop), tmp_path / "sold.jsonl")
    with pytest.raises(PoolArchived):
        shop.open(5, 2)
    opened = shop.open(5, 2, epoch=2)
    assert isinstance(opened, Opened)
    assert (opened.state.epoch, opened.state.available, opened.state.order_count) == (2, 5, 0)
    assert isinstance(shop.reserve("one"), Reserved)
    assert isinstance(shop.open(5, 2, epoch=2), AlreadyOpen)
    shop.check_books()


def test_the_note_does_not_end_the_pool_that_is_opened_again(redis_shop: Shop, tmp_path: Path) -> None:
    archived(sold(redis_shop), tmp_path / "sold.jsonl")
    redis_shop.open(5, 2, epoch=2)
    assert redis_shop.side.raw().pttl(redis_shop.keys.meta) == -1


def test_once_its_note_is_gone_an_archived_pool_was_never_seen(redis_shop: Shop, tmp_path: Path) -> None:
    shop = redis_shop
    archived(sold(shop), tmp_path / "sold.jsonl")
    with pytest.raises(PoolArchived):
        shop.reserve("late")
    shop.side.raw().delete(shard_keys(shop.sku).meta)
    with pytest.raises(PoolMissing) as error:
        shop.reserve("late")
    assert not isinstance(error.value, PoolVanished | PoolArchived)
    assert isinstance(shop.open(5, 2), Opened)


def test_a_pool_with_reserved_units_is_refused_and_can_still_decide_them(shop: Shop, tmp_path: Path) -> None:
    shop.open(10, 4)
    shop.reserved("one", 3)
    shop.close()
    with pytest.raises(InvalidInput, match="cannot be archived: 3 units are reserved: confirm or cancel the orders"):
        archived(shop, tmp_path / "sold.jsonl")
    assert shop.confirm("one").state == "confirmed"
    assert archived(shop, tmp_path / "sold.jsonl").orders == 1


def test_holds_that_have_expired_are_given_back_first(shop: Shop, tmp_path: Path) -> None:
    shop.open(10, 4)
    shop.reserved("one", 3, hold_ms=0)
    shop.close()
    archived(shop, tmp_path / "sold.jsonl")
    assert values(tmp_path / "sold.jsonl", "orders") == {"one": "e\t3\t1\t4"}


def test_a_queued_order_is_refused(shop: Shop, tmp_path: Path) -> None:
    """And so is an unfinished cart."""
    shop.open(10, 4)
    shop.side.execute(op.OpenCart(Cart("basket", [(shop.sku, 1)]), 600_000))
    shop.side.execute(op.QueueOrders(shop.sku, (Order("one", 1),), 1_000))
    shop.close()
    with pytest.raises(InvalidInput, match="1 submitted order is unfinished: let the workers finish"):
        archived(shop, tmp_path / "sold.jsonl")
    shop.cancel("one")
    with pytest.raises(InvalidInput, match="1 cart is unfinished: run 'segmented pool finish-carts"):
        archived(shop, tmp_path / "sold.jsonl")


def test_a_pool_whose_changes_are_not_all_relayed_is_refused(plain_redis_side: Side, tmp_path: Path) -> None:
    shop = sold(Shop(plain_redis_side, plain_redis_side.name()))
    for relayed, behind in (("1-7", 3), ("2-9", 10), ("nonsense", 10)):
        shop.side.raw().hset(shop.keys.meta, "relayed", relayed)
        with pytest.raises(InvalidInput, match=f"{behind} changes are not in the order database yet"):
            archived(shop, tmp_path / "sold.jsonl")
    shop.side.raw().hset(shop.keys.meta, "relayed", "1-10")
    assert archived(shop, tmp_path / "sold.jsonl").orders == 3
    assert values(tmp_path / "sold.jsonl", "meta")["relayed"] == "1-10"
