"""Answers in a condition: grants are true, refusals are false, and a type checker narrows them."""

from typing import Final, assert_never, assert_type

import pytest

from segmented import Grant, MemoryStore, Pool
from segmented.dedup import Replay, Run
from segmented.models import (
    Busy,
    CartDecided,
    CartRefused,
    CartReserved,
    CartSettled,
    Closed,
    Decided,
    LimitReached,
    Reserved,
    Restocked,
    Settled,
    SoldOut,
    TooFew,
)
from segmented.models.submitted import Dead, Queued
from segmented.stock import Cart, Carts

SOLD_OUT: Final = SoldOut("a", 1, 0, 0, 1)
TRUE: Final = (
    Reserved("a", 1, 0, ((0, 1),), 1, 2, replay=False),
    Settled("a", "cancelled", 1, 0, None, 2, replay=True),
    Queued("a", replay=True),
    Restocked("r", 1, 2, 3, replay=True),
    CartReserved("c", "a", "c~1", (("a", 1),), replay=False),
    CartSettled("c", "cancelled", replay=True, is_finished=True),
)
FALSE: Final = (
    SOLD_OUT,
    Busy("a", 1, None),
    Closed("a"),
    LimitReached("a", 1, "ann", 2, 2),
    Decided("a", "confirmed", 1, 0, None, 2, replay=True),
    Dead("a", 3),
    TooFew("w", 3, 2),
    CartRefused("c", "a", SOLD_OUT, replay=False),
    CartDecided("c", "confirmed", replay=True, is_finished=True),
)


def narrowed(pool: Pool, carts: Carts, cart: Cart, run: Run | Replay) -> None:
    """Is not called: mypy checks it, with `make lint`."""
    answer = pool.reserve("o-1")
    if answer:
        assert_type(answer, Reserved)
    else:
        assert_type(answer, SoldOut | Busy | Decided | Closed | LimitReached)
    grant = pool.grant("o-2")
    if not grant:
        assert_type(grant, SoldOut | Busy | Decided | Closed | LimitReached)
        return
    assert_type(grant, Grant)
    match pool.grant("o-3"):
        case Grant() | SoldOut() | Busy() | Decided() | Closed() | LimitReached():
            pass
        case other:
            assert_never(other)
    reserved = carts.reserve(cart)
    if reserved:
        assert_type(reserved, CartReserved)
    else:
        assert_type(reserved, CartRefused | CartDecided)
    if run:
        assert_type(run, Run)
    else:
        assert_type(run, Replay)
    if run.is_replay is True:
        assert_type(run, Replay)


@pytest.mark.parametrize("answer", TRUE, ids=lambda answer: type(answer).__name__)
def test_what_is_granted_or_done_is_true(answer: object) -> None:
    assert bool(answer) is True


@pytest.mark.parametrize("answer", FALSE, ids=lambda answer: type(answer).__name__)
def test_what_is_refused_is_false(answer: object) -> None:
    assert bool(answer) is False


def test_a_grant_is_true_and_a_refusal_is_false() -> None:
    pool = Pool(MemoryStore(), "poster")
    pool.open(stock=1, segments=1)
    grant = pool.grant("a", timeout=0)
    assert grant
    assert grant.confirm()
    assert not pool.grant("a", timeout=0)
    assert not pool.grant("b", timeout=0)
