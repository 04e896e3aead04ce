"""What is right by itself, but not now, gets an answer or a named error, and not one key is another afterwards."""

from collections.abc import Callable
from typing import Any

import pytest

from segmented.errors import (
    ChangeMismatch,
    GrantSuperseded,
    InvalidInput,
    OrderMismatch,
    OrderUnknown,
    PoolDiffers,
    PoolGated,
    PoolMissing,
    SegmentedError,
)
from segmented.models import Closed, LimitReached, Order, SoldOut, TooFew
from tests.support.pools.pool_callers import Caller

UNCHANGED: dict[str, tuple[Callable[[Any], object], type]] = {
    "open otherwise": (lambda pool: pool.open(stock=50, segments=9, epoch=3), PoolDiffers),
    "confirm a stranger": (lambda pool: pool.confirm("nobody"), OrderUnknown),
    "cancel a stranger": (lambda pool: pool.cancel("nobody"), OrderUnknown),
    "cancel another's": (lambda pool: pool.cancel("granted", holder_id="another"), GrantSuperseded),
    "other quantity": (lambda pool: pool.reserve("held", quantity=3), OrderMismatch),
    "other customer": (lambda pool: pool.reserve(Order("held", 2, "ann")), OrderMismatch),
    "other grant": (lambda pool: pool.grant("granted", quantity=2, timeout=0, holder_id="h"), OrderMismatch),
    "more than is free": (lambda pool: pool.reserve("new", quantity=99), SoldOut),
    "a grant of more than is free": (lambda pool: pool.grant("new", quantity=99, timeout=0), SoldOut),
    "other restock": (lambda pool: pool.restock(4, restock_id="r"), ChangeMismatch),
    "a restock's id": (lambda pool: pool.withdraw(3, withdraw_id="r"), ChangeMismatch),
    "withdraw more than is free": (lambda pool: pool.withdraw(99, withdraw_id="w"), TooFew),
    "missing order": (lambda pool: pool.confirm_many(["nobody"]), list),
}


def test_what_does_not_fit_the_pool_is_told_and_changes_nothing(caller: Caller) -> None:
    before = caller.keys()
    for pool in caller.pools():
        for name, (ask, expected) in UNCHANGED.items():
            try:
                answer = caller.ask(lambda pool, _: ask(pool), pool)  # noqa: B023  # called in this turn
            except SegmentedError as error:
                answer = error
            assert isinstance(answer, expected), name
            assert caller.keys() == before, name


def test_a_customer_at_its_limit_changes_nothing(caller: Caller) -> None:
    for pool in caller.pools("limited"):
        before = caller.keys()
        assert isinstance(caller.ask(lambda pool, _: pool.reserve(Order("a", 3, "ann")), pool), LimitReached)
        with pytest.raises(InvalidInput):
            caller.ask(lambda pool, _: pool.reserve("a"), pool)
        with pytest.raises(InvalidInput):
            caller.ask(lambda pool, _: pool.grant("a", timeout=0), pool)
        assert caller.keys() == before


def test_a_closed_pool_changes_no_more_for_new_orders(caller: Caller) -> None:
    first, second = caller.pools()
    first.close()
    for pool in (first, second):
        before = caller.keys()
        assert caller.ask(lambda pool, _: pool.reserve("new"), pool) == Closed("new")
        assert caller.ask(lambda pool, _: pool.grant("new", timeout=0), pool) == Closed("new")
        assert caller.ask(lambda pool, _: pool.reserve_many([Order("new", 1)]), pool) == [Closed("new")]
        assert caller.ask(lambda pool, _: pool.restock(1, restock_id="late"), pool) == Closed("late")
        assert caller.keys() == before


ON_ANY_POOL: dict[str, Callable[[Any], object]] = {
    "state": lambda pool: pool.state(),
    "reserve": lambda pool: pool.reserve("a"),
    "reserve_many": lambda pool: pool.reserve_many([Order("a", 1)]),
    "grant": lambda pool: pool.grant("a", timeout=0),
    "confirm": lambda pool: pool.confirm("a"),
    "cancel": lambda pool: pool.cancel("a"),
    "confirm_many": lambda pool: pool.confirm_many(["a"]),
    "cancel_many": lambda pool: pool.cancel_many(["a"]),
    "expire": lambda pool: pool.expire(),
    "restock": lambda pool: pool.restock(1, restock_id="r"),
    "withdraw": lambda pool: pool.withdraw(1, withdraw_id="w"),
    "resize": lambda pool: pool.resize(2),
    "close": lambda pool: pool.close(),
    "audit": lambda pool: pool.audit(),
}


def test_a_sku_that_is_not_open_is_told_and_makes_no_key(caller: Caller) -> None:
    before = caller.keys()
    for pool in caller.pools("unknown"):
        for name, ask in ON_ANY_POOL.items():
            with pytest.raises(PoolMissing, match=r"^pool 'unknown' is not open"):
                caller.ask(lambda pool, _: ask(pool), pool)  # noqa: B023  # called in this turn
            assert caller.keys() == before, name


def test_a_gated_pool_whose_database_has_not_decided_changes_nothing(caller: Caller) -> None:
    first, second = caller.pools("gated")
    first.open(stock=5, segments=2, gated=True)
    first.reserve("a")
    for pool in (first, second):
        before = caller.keys()
        asks = (lambda pool, _: pool.confirm("a"), lambda pool, _: pool.cancel("a"), lambda pool, _: pool.expire())
        for ask in asks:
            with pytest.raises(PoolGated):
                caller.ask(ask, pool)
        assert caller.keys() == before
