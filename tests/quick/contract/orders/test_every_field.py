"""Each field of an order is kept by each script that writes its record or its entry, and given to the worker."""

from dataclasses import fields, replace
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.models import Granted, Order
from tests.support.contract.orders.submitting import begun, buried, queue, replay, submit, submitted, sweep
from tests.support.contract.pools.shop import SHORT_MS, Shop

GIVEN: Final[dict[str, Any]] = {"order_id": "a", "quantity": 2}
FULL: Final = Order(**{field.name: GIVEN.get(field.name, f"the {field.name}") for field in fields(Order)})
"""An order whose fields all have a value; a new field has one by itself."""


def kept(shop: Shop, order_id: str = "a") -> Order:
    found = shop.record(order_id)
    assert found is not None
    return found.order


@pytest.mark.parametrize("limit", [None, 3], ids=["plain", "limited"])
def test_a_reserved_order_is_kept_whole_also_beside_others(shop: Shop, limit: int | None) -> None:
    shop.open(9, 3, limit_per_customer=limit)
    other = Order("b", 1, "ann")
    shop.reserve_many([other, FULL])
    shop.confirm("a")
    assert (kept(shop), kept(shop, "b")) == (FULL, other)


def test_a_granted_order_is_kept_whole_and_so_is_a_refused_one(shop: Shop) -> None:
    shop.open(3, 1)
    found = shop.side.execute(op.Grant(shop.sku, FULL, "h", 60_000, 60_000, keep_refusal=True))
    assert isinstance(found, Granted)
    shop.side.execute(op.ReleaseGrant(shop.sku, "a", "h"))
    assert kept(shop) == FULL
    shop.cancel("a")
    shop.reserve_many([Order("b", 2)])
    refused = replace(FULL, order_id="c")
    assert not shop.side.execute(op.Grant(shop.sku, refused, "h", 60_000, 60_000, keep_refusal=True))
    assert kept(shop, "c") == refused


def test_a_worker_gets_the_whole_order_that_was_accepted_with_its_units(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, FULL)
    assert (begun(shop, "a").order, kept(shop)) == (FULL, FULL)


def test_a_worker_gets_the_whole_order_that_was_accepted_without_units(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, FULL)
    shop.side.execute(op.NoteTraces(shop.sku, ("a",), "00-trace-01"))
    assert submitted(shop, "a").order == FULL
    assert (begun(shop, "a").order, kept(shop)) == (FULL, FULL)


@pytest.mark.parametrize("accept", [submit, queue])
def test_a_dead_order_is_whole_once_it_is_replayed(shop: Shop, accept: Any) -> None:  # noqa: ANN401  # either of both
    shop.open(9, 3)
    accept(shop, FULL)
    buried(shop, "a")
    replay(shop, "a")
    assert begun(shop, "a").order == FULL


def test_a_queued_order_that_dies_without_units_is_whole_once_it_is_replayed(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, FULL, after_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    sweep(shop, begun_max=0)
    replay(shop, "a")
    assert submitted(shop, "a").order == FULL


def test_a_queued_order_that_is_cancelled_is_kept_whole(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, FULL)
    shop.cancel("a")
    assert kept(shop) == FULL


def test_an_erased_customer_takes_no_other_field_along(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([FULL])
    shop.confirm("a")
    shop.side.execute(op.TrimLedger(shop.sku, keep=0))
    assert FULL.customer_id is not None
    shop.side.execute(op.EraseCustomer(shop.sku, FULL.customer_id, "orders", ("a",)))
    found = kept(shop)
    assert [field.name for field in fields(Order) if getattr(found, field.name) != getattr(FULL, field.name)] == [
        "customer_id"
    ]
