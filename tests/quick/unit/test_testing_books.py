"""The books of a test's pools: a sentence for each that does not balance, and none for one that does."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.models import Order, Reserved
from segmented.orders import finish_reserved, open_gated
from segmented.stock import Pool
from segmented.stores.memory import MemoryStore
from segmented.testing.plugin import Book, unbalanced

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.orders import Gate


class TamperedStore(MemoryStore):
    """A store whose answers are changed on the way, once `tamper` is set."""

    tamper: Callable[[op.Operation[Any], Any], Any] | None = None

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        answer = super().execute(operation, deadline=deadline)
        return answer if self.tamper is None else self.tamper(operation, answer)


def a_pool(sku: str = "mug", *, orders: int = 2) -> tuple[Pool, TamperedStore]:
    """Twenty units, and orders of one unit each that hold theirs."""
    store = TamperedStore()
    pool = Pool(store, sku)
    pool.open(stock=20, segments=2)
    for number in range(orders):
        pool.reserve(Order(f"o{number}", 1))
    return pool, store


def without_records(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
    return tuple(replace(one, raw=None) for one in answer) if isinstance(operation, op.InspectOrders) else answer


@pytest.mark.parametrize(("orders", "last"), [(10, "lost: order o9: it has no record"), (11, "and 1 more")])
def test_ten_drifts_are_named_and_the_rest_is_counted(orders: int, last: str) -> None:
    pool, store = a_pool(orders=orders)
    store.tamper = without_records
    found = Book(pool, None).faults()
    assert len(found) == orders
    assert found[0].startswith("lost: order o0: it has no record, the ledger says reserved with 1 unit at 2")
    assert found[-1].startswith(last)


def test_units_oversold_and_an_order_refused_wrongly_are_said() -> None:
    pool, store = a_pool()

    def oversold(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        return replace(answer, reserved=22) if isinstance(operation, op.ReadPool) else answer

    store.tamper = oversold
    assert "2 units oversold" in Book(pool, None).faults()

    def refused(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.ReadSteps):
            return answer
        return tuple(replace(step, kind="refused") if step.lines.startswith("o1\t") else step for step in answer)

    store.tamper = refused
    assert "1 order refused although there were enough units" in Book(pool, None).faults()


def test_of_several_pools_each_that_does_not_balance_has_its_line() -> None:
    (mug, _), (cup, store), (jar, broken) = a_pool("mug"), a_pool("cup", orders=1), a_pool("jar", orders=1)
    store.tamper = broken.tamper = without_records
    lost = "lost: order o0: it has no record, the ledger says reserved with 1 unit at 2"
    assert unbalanced([Book(mug, None), Book(cup, None), Book(jar, None)]) == (
        f"the books of pool 'cup' do not balance: {lost}\nthe books of pool 'jar' do not balance: {lost}"
    )
    assert unbalanced([Book(mug, None)]) == ""


def test_the_order_database_may_lead_its_pool_by_what_is_reserved_and_never_lags(
    sqlite_url: str, open_gate: Callable[..., Gate]
) -> None:
    gate, store = open_gate(sqlite_url), MemoryStore()
    pool = Pool(store, "mug")
    open_gated(pool, gate, stock=5, segments=1)
    orders = [Order("a", 1), Order("b", 2)]
    held = [pool.reserve(order) for order in orders]
    assert isinstance(held[0], Reserved)
    finish_reserved(pool, gate, orders[0], held[0])
    assert Book(pool, gate).faults() == []

    def stored(order_id: str, quantity: int) -> list[str]:
        gate.confirm(order_id=order_id, sku="mug", segment=0, quantity=quantity, epoch=1)
        return Book(pool, gate).faults()

    assert stored("b", 2) == []  # its pool will be told
    assert stored("c", 1) == ["the order database has 4 units sold, the pool 1 confirmed and 2 reserved"]
    gate_of_nothing = open_gate(sqlite_url.replace("orders.sqlite", "others.sqlite"))
    gate_of_nothing.open("mug", [5], 1)
    assert Book(pool, gate_of_nothing).faults() == [
        "the order database has 0 units sold, the pool 1 confirmed and 2 reserved"
    ]
