"""A pool's keys say their layout: a release that does not know it changes nothing and says what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.errors import LayoutUnknown
from segmented.models import Reserved
from segmented.models.assignments import Assignment
from tests.quick.contract.pools.test_freezing import CHANGES
from tests.support.contract.pools.shop import Shop
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side

MORE: dict[str, Callable[[Shop], object]] = {
    "state": lambda shop: shop.side.execute(op.ReadPool(shop.sku)),
    "freeze": lambda shop: shop.side.execute(op.FreezePool(shop.sku, 1)),
    "thaw": lambda shop: shop.side.execute(op.ThawPool(shop.sku, 2, 0)),
    "audit": lambda shop: shop.side.pool(shop.sku).audit(),
    "mend": lambda shop: shop.side.execute(op.MendNumber(shop.sku, "total", "reserved", 1, 5)),
    "relay": lambda shop: shop.side.execute(op.NoteRelayed(shop.sku, None)),
    "forget": lambda shop: shop.side.execute(op.ForgetOrders(shop.sku, 1, 0)),
    "dead": lambda shop: shop.side.execute(op.ReplayDead(shop.sku, ("kept",))),
}


READS: Final = re.compile(r"read_(pool|numbers)\(\)|check_layout\(redis")


@pytest.fixture
def shop(redis_side: Side) -> Shop:
    """A pool of ten units, of which one is reserved."""
    shop = Shop(redis_side, redis_side.name())
    shop.open(10, 4)
    shop.reserved("kept")
    return shop


def everything(shop: Shop) -> dict[str, object]:
    raw = shop.side.raw()
    return {name: raw.dump(name) for name in shop.keys.listed()}


def test_a_pool_from_before_the_field_is_of_layout_1(shop: Shop) -> None:
    assert shop.side.raw().hget(shop.keys.meta, "layout") in ("1", b"1")
    shop.side.raw().hdel(shop.keys.meta, "layout")
    assert shop.confirm("kept").state == "confirmed"
    assert isinstance(shop.reserve("next"), Reserved)
    assert shop.side.pool(shop.sku).audit().is_clean


def test_a_pool_that_names_a_queue_or_a_step_has_the_layout_that_guards_it(shop: Shop) -> None:
    """A worker of a release that would pass the step over, and sell unpaid orders, does not touch the pool."""

    def layout() -> object:
        found = shop.side.raw().hget(shop.keys.meta, "layout")
        return found.decode() if isinstance(found, bytes) else found

    for named, expected in (("shop:pay", "2"), (None, "1")):
        shop.side.execute(op.AssignPool(shop.sku, Assignment(None, named)))
        assert layout() == expected
    opened = Shop(shop.side, shop.side.name())
    shop.side.pool(opened.sku).open(stock=10, segments=4, step="shop:pay")
    assert opened.side.raw().hget(opened.keys.meta, "layout") in ("2", b"2")
    assert isinstance(opened.reserve("a"), Reserved)


def test_a_pool_of_another_layout_is_neither_read_nor_changed(shop: Shop) -> None:
    asked = [
        *((change, "3") for change in CHANGES | MORE),
        *(("reserve", said) for said in ("0", "1.0", "", "two words")),
    ]
    for change, layout in asked:
        shop.side.raw().hset(shop.keys.meta, "layout", layout)
        before = everything(shop)
        with pytest.raises(LayoutUnknown) as error:
            (CHANGES | MORE)[change](shop)
        found = layout if layout.isalnum() else "?"
        assert (error.value.sku, error.value.found, error.value.known) == (shop.sku, found, "2"), (change, layout)
        assert everything(shop) == before, (change, layout)


def test_every_script_that_changes_a_pool_reads_its_layout_first() -> None:
    scripts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "segmented" / "protocol").rglob("*.lua")}
    changing = {
        path.name: text
        for path, text in scripts.items()
        if "-- uses shared/pool.lua" in text and "no-writes" not in text.partition("\n")[0]
    }
    assert len(changing) > 20
    assert {name for name, text in changing.items() if not READS.search(text)} == set()
