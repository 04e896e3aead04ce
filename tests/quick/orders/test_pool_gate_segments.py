"""A pool with a gate, and who has its segment: only a holder's own end frees it, and every end does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Busy, Pool, RedisStore
from segmented.errors import DatabaseUnavailable, InvalidInput, NotGranted, OrderMismatch
from segmented.keys import shard_keys
from segmented.stock import Grant
from tests.support.contract.parking import wait_until
from tests.support.pools.gated_shop import check

if TYPE_CHECKING:
    from segmented.orders import Gate

pytestmark = pytest.mark.usefixtures("patient_attempts")

SKU: Final = "mug"


@pytest.fixture
def narrow(store: RedisStore, gate: Gate) -> Pool:
    """A pool with one segment."""
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=20, segments=1)
    return pool


def is_locked(pool: Pool) -> bool:
    return isinstance(pool.plain.grant("probe", timeout=0), Busy)


def test_a_repeat_that_fails_leaves_the_segment_to_the_first_call(narrow: Pool) -> None:
    with narrow.grant("a", holder_id="h"):
        with pytest.raises(OrderMismatch):
            narrow.grant("a", quantity=2, holder_id="h", timeout=0)
        assert is_locked(narrow)


def test_a_stale_holders_confirm_leaves_the_segment_to_its_successor(narrow: Pool, gate: Gate) -> None:
    first = Pool(narrow.store, SKU, gate=gate, ttl=0.001).grant("a")
    assert isinstance(first, Grant)
    second = narrow.grant("a", timeout=60)
    assert isinstance(second, Grant)
    assert narrow.confirm("a", holder_id=first.holder_id).state == "confirmed"
    assert is_locked(narrow)
    assert second.confirm().state == "confirmed"
    assert not is_locked(narrow)


@pytest.mark.real
def test_no_body_runs_for_an_order_that_was_voided_while_it_waited(narrow: Pool, gate: Gate) -> None:
    held = narrow.grant("held")
    assert isinstance(held, Grant)

    def void() -> None:
        wait_until(lambda: narrow.store.wakeups.is_waited_for(shard_keys(SKU).freed))
        gate.void(order_id="a", sku=SKU, quantity=1)
        held.confirm()

    thread = threading.Thread(target=void)
    thread.start()
    with pytest.raises(NotGranted, match="cancelled"), narrow.grant("a", timeout=60):
        pytest.fail("the body ran")
    thread.join()
    check(narrow, gate, confirmed=1, available=19)


def test_a_database_that_fails_at_the_end_of_a_body_leaves_the_segment_free(
    narrow: Pool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise DatabaseUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(gate, "confirm", away)
        with pytest.raises(DatabaseUnavailable), narrow.grant("a", timeout=60):
            pass
        patched.setattr(gate, "void", away)
        with pytest.raises(ZeroDivisionError), narrow.grant("b", timeout=60):
            raise ZeroDivisionError
    for order_id in "ab":
        with narrow.grant(order_id, timeout=60):  # a repeat continues at once
            pass
    check(narrow, gate, confirmed=2, available=18)


def test_a_resolver_does_not_decide_past_the_gate(narrow: Pool) -> None:
    with pytest.raises(InvalidInput, match="call expire without a resolver"):
        narrow.expire(resolver=lambda _: "confirm")
