"""One text is one id in an order database, too, in whatever form it is given."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final
from unicodedata import normalize

import pytest

from segmented import MemoryStore, Order, Pool
from segmented.orders import Gate
from segmented.orders.answers import Confirmed
from segmented.orders.changing import restock_gated
from segmented.orders.opening import open_gated

TEXT: Final = "Caf\u00e9\u00a07"


class Mixed(str, Enum):  # noqa: UP042  # its str() is its name
    MEMBER = TEXT


class Plain(StrEnum):
    MEMBER = TEXT


@pytest.mark.parametrize("form", [Mixed.MEMBER, Plain.MEMBER, normalize("NFD", TEXT)], ids=["enum", "StrEnum", "NFD"])
def test_an_order_and_a_change_count_once_in_redis_and_in_sql(order_database: str, form: str) -> None:
    with Gate(order_database) as gate:
        store = MemoryStore()
        open_gated(Pool(store, form), gate, stock=10, segments=2)
        pools = [Pool(store, one, gate=gate) for one in (form, TEXT)]
        for pool, other in zip(pools, (TEXT, form), strict=True):
            pool.reserve(Order(other, 1, other))
            pool.confirm(form)
            pool.confirm_many([other])
            pool.restock(5, restock_id=other)
            restock_gated(pool, gate, 5, restock_id=form)
        assert pools[0].available() == 14
        assert gate.confirmed_units(TEXT) == 1
        assert gate.is_decided(form, form)
        assert list(gate.orders(form, [form])) == [TEXT]
        answers = [gate.confirm(order_id="o-2", sku=one, segment=0, quantity=1, epoch=1) for one in (form, TEXT)]
        assert answers == [Confirmed(replay=False), Confirmed(replay=True)]
