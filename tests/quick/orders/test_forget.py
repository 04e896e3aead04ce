"""Orders that are forgotten, and what the archive keeps."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from segmented import LimitReached, Order, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderUnknown
from segmented.keys import shard_keys
from segmented.models import Cart, CartAnswer, CartRecord, CartSettled, Decided
from segmented.models.submitted import Deciding
from segmented.orders import Gate, audit_both, forget, forgetting, rebuild, relay, take_envelope
from segmented.orders.sale import cancel_order, finish_reserved, take_order
from segmented.stock import Carts
from segmented.stock.outbox import Outbox
from tests.support.pools.gated_shop import check
from tests.support.workers.envelope_till import BOTH

SKU: Final = "mug"
SECONDS: Final = 60.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool forget without the ten seconds of its notice, and processes read again at once."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments: three orders sold, one cancelled, one reserved."""
    pool = Pool(store, SKU, outbox=Outbox(publish_after=600))
    Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4)
    for order_id, quantity in (("a", 1), ("b", 2), ("c", 3)):
        sell(pool, gate, order_id, quantity)
    pool.reserve(Order("x", 4))
    cancel_order(pool, gate, Order("x", 4))
    pool.reserve(Order("r", 1))
    return pool


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int = 1) -> None:
    settled = take_order(pool, gate, Order(order_id, quantity), timeout=SECONDS)
    assert isinstance(settled, Settled)
    assert settled.state == "confirmed"


def trimmed(pool: Pool, gate: Gate) -> None:
    """Relay twice: the first trim only writes its checkpoint, the second one deletes what was before it."""
    for _ in range(3):
        relay(pool, gate, trim_keep=0)


def announced(pool: Pool, gate: Gate) -> None:
    """Note that the pool will forget, as the first call does, which drops nothing."""
    trimmed(pool, gate)
    start = pool.store.execute(op.ReadLedgerStart(SKU))
    pool.store.execute(op.ForgetOrders(SKU, start - 1, 0))


def forgotten(pool: Pool, gate: Gate, **options: Any) -> tuple[int, int]:  # noqa: ANN401  # any of forget's options
    """Forget, and return how many orders and units that were."""
    announced(pool, gate)
    report = forget(pool, gate, **({"grace": 0.0} | options))
    return report.orders, report.units


def records(pool: Pool, *order_ids: str) -> list[str | None]:
    found = pool.store.execute(op.ReadOrders(SKU, order_ids))
    return [None if record is None else record.state for record in found]


# --- what goes ---


def test_what_is_finished_relayed_and_trimmed_goes_and_both_audits_are_clean(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    assert records(pool, "a", "b", "c", "x", "r") == [None, None, None, None, "reserved"]
    assert (pool.state().forgotten, pool.state().lost) == (4, 6)
    check(pool, gate, confirmed=6, available=13, reserved=1)
    assert forgotten(pool, gate) == (0, 0)


def test_orders_stay_during_their_grace_time(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate, grace=3_600.0) == (0, 0)
    assert records(pool, "a", "x") == ["confirmed", "cancelled"]


def test_another_pool_keeps_its_records_and_says_why(store: RedisStore, gate: Gate) -> None:
    for sku, gated, why in (("cup", False, "it has no order database"), ("pot", True, "was not relayed and trimmed")):
        pool = Pool(store, sku)
        pool.open(stock=3, segments=1, gated=gated)
        gate.open(sku, [3])
        with pytest.raises(InvalidInput, match=why):
            forget(pool, gate, grace=0)


def test_a_refused_order_goes_and_its_repeat_is_a_new_attempt(pool: Pool, gate: Gate) -> None:
    queue = Pool(pool.store, SKU, outbox=Outbox.under_lock())
    queue.submit("large", quantity=14)
    take_envelope(queue, ["large"], gate=gate)
    assert records(pool, "large") == ["refused"]
    assert forgotten(pool, gate) == (5, 6)
    assert records(pool, "large") == [None]
    queue.submit("large", quantity=13)
    take_envelope(queue, ["large"], gate=gate)
    check(pool, gate, confirmed=19, available=0, reserved=1)


# --- repeats of forgotten orders ---


def test_a_part_of_a_forgotten_order_taken_by_a_process_that_is_late_lowers_no_row(
    pool: Pool, gate: Gate, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Pool(store, SKU, gate=gate)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 600.0)
    assert not forgetting.may_have_forgotten(late.plain)
    forgotten(pool, gate)
    late.reserve(Order("c", 3))
    store.execute(op.ChangeQuantity(SKU, "c", 2))
    assert late.confirm("c").quantity == 2
    assert (gate.orders(SKU, ["c"])["c"].quantity, gate.totals(SKU).sold) == (3, 6)


def test_a_repeat_in_a_sold_out_pool_is_not_refused(pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "rest", 13)
    assert forgotten(pool, gate) == (5, 19)
    assert isinstance(take_order(pool, gate, Order("late", 1), timeout=SECONDS), SoldOut)
    for order, state in ((Order("rest", 13), "confirmed"), (Order("x", 4), "cancelled")):
        again = take_order(pool, gate, order, timeout=SECONDS)
        assert isinstance(again, Settled if state == "confirmed" else Decided)
        assert again.state == state
    check(pool, gate, confirmed=19, available=0, reserved=1)


def test_units_reserved_for_a_sold_order_go_back_when_it_is_finished(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    for order, state in ((Order("c", 3), "confirmed"), (Order("x", 4), "cancelled")):
        reserved = pool.reserve(order)
        assert isinstance(reserved, Reserved)
        assert finish_reserved(pool, gate, order, reserved).state == state
    check(pool, gate, confirmed=6, available=13, reserved=1)


def test_a_forgotten_order_that_was_sold_cannot_be_cancelled_and_a_cancelled_one_can(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    assert cancel_order(pool, gate, Order("b", 2)).state == "confirmed"
    pool.reserve(Order("c", 3))
    assert cancel_order(pool, gate, Order("c", 3)).state == "confirmed"
    assert cancel_order(pool, gate, Order("x", 4)).state == "cancelled"
    with pytest.raises(OrderUnknown):
        cancel_order(pool, gate, Order("nobody's", 1))
    check(pool, gate, confirmed=6, available=13, reserved=1)


def test_a_repeat_with_other_content_is_refused_and_keeps_no_units(pool: Pool, gate: Gate) -> None:
    take_order(pool, gate, Order("d", 1, "ann"), timeout=SECONDS)
    assert forgotten(pool, gate) == (5, 7)
    others = (Order("b", 1), "quantity 2"), (Order("x", 5), "quantity 4"), (Order("d", 1, "bob"), "another customer")
    for other, stored in others:
        with pytest.raises(OrderMismatch, match=f"{stored} is stored"):
            take_order(pool, gate, other, timeout=SECONDS)
    reserved = pool.reserve(Order("b", 3))
    assert isinstance(reserved, Reserved)
    with pytest.raises(OrderMismatch, match="quantity 2 is stored, 3 was given"):
        finish_reserved(pool, gate, Order("b", 3), reserved)
    check(pool, gate, confirmed=7, available=12, reserved=1)


def test_units_of_an_envelope_whose_worker_does_not_know_yet_go_back(
    pool: Pool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forgotten(pool, gate) == (4, 6)
    pool.submit_many([Order("a", 1), Order("new", 1)])
    told = iter([False, False])
    monkeypatch.setattr("segmented.orders.forgetting.may_have_forgotten", lambda _: next(told, True))
    report = take_envelope(pool, ["a", "new"], gate=gate)
    assert [(one.order_id, one.state) for one in report.settled] == [("a", "confirmed"), ("new", "confirmed")]
    check(pool, gate, confirmed=7, available=12, reserved=1)


@pytest.mark.parametrize("decides", BOTH)
def test_a_repeat_of_a_returned_order_leaves_nothing_in_the_queue(pool: Pool, gate: Gate, decides: Deciding) -> None:
    assert Pool(pool.store, SKU, gate=gate).return_units("b", 2, return_id="rma-1").quantity == 0
    forgotten(pool, gate)
    queue = Pool(pool.store, SKU, outbox=Outbox(decides=decides))
    queue.submit("b", quantity=2)
    report = take_envelope(queue, ["b"], gate=gate)
    assert [(one.order_id, one.state) for one in report.settled] == [("b", "returned")]
    assert pool.store.execute(op.ReadOutbox(SKU)).waiting == 0
    check(pool, gate, confirmed=4, available=15, reserved=1)


# --- what happens meanwhile ---


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", ["note_forgotten", "execute"])
def test_killed_at_every_step_and_run_again_nothing_is_lost(
    pool: Pool, gate: Gate, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced(pool, gate)
    target: Any = gate if step == "note_forgotten" else pool.store
    real = getattr(target, step)
    for died_at in range(20):
        for after in (False, True):
            calls = iter(range(1_000))

            def dying(*given: Any, calls: Any = calls, died_at: int = died_at, after: bool = after) -> Any:  # noqa: ANN401  # stands for any call
                is_last = next(calls) == died_at
                if is_last and not after:
                    raise Killed
                answer = real(*given)
                if is_last:
                    raise Killed
                return answer

            with monkeypatch.context() as patched, suppress(Killed):
                patched.setattr(target, step, dying)
                forget(pool, gate, grace=0)
            check(pool, gate, confirmed=6, available=13, reserved=1)
            sell_again(pool, gate)
    assert (pool.state().forgotten, pool.state().lost) == (4, 6)


def sell_again(pool: Pool, gate: Gate) -> None:
    for order_id, quantity in (("a", 1), ("b", 2), ("c", 3)):
        sell(pool, gate, order_id, quantity)


def test_a_rebuild_after_forgetting_counts_every_unit_once(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    pool.reserve(Order("b", 2))  # a second time, and then the server is lost
    pool.store.execute(op.FreezePool(SKU, 1))
    rebuild(pool, gate)
    sell(pool, gate, "new")
    check(pool, gate, confirmed=7, available=12, reserved=1)
    sell_again(pool, gate)
    trimmed(pool, gate)
    assert forget(pool, gate, grace=0).units == 3
    check(pool, gate, confirmed=7, available=12, reserved=1)


def test_records_that_go_during_an_audit_start_it_again(
    pool: Pool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced(pool, gate)
    real, calls = pool.store.execute, list[str]()

    def interrupted(operation: Any) -> Any:  # noqa: ANN401  # any operation and its answer
        if isinstance(operation, op.InspectOrders | op.ScanKey) and not calls:
            calls.append("forget")
            assert forget(pool, gate, grace=0).units == 6
        return real(operation)

    monkeypatch.setattr(pool.store, "execute", interrupted)
    report = pool.audit()
    assert (report.is_clean, calls) == (True, ["forget"]), report.drift


SKUS: Final = ("cap", "mug")
LINES: Final = [("mug", 2), ("cap", 1)]
HOME: Final = "cap"


def forgotten_cart(pool: Pool, gate: Gate) -> int:
    """Relay, trim and forget; return how many orders that were."""
    for _ in range(3):
        relay(pool, gate, trim_keep=0)
    return forget(pool, gate, grace=0.0).orders


def test_a_finished_cart_answers_its_repeats_after_its_orders_are_forgotten(store: RedisStore, gate: Gate) -> None:
    pools = [Pool(store, sku, gate=gate) for sku in SKUS]
    for pool in pools:
        pool.open(stock=10, segments=2)
    carts = Carts(store, gate=gate)
    sold, back = Cart("sold", LINES), Cart("back", LINES)
    for cart in (sold, back):
        carts.reserve(cart)
    carts.confirm("sold", home=HOME)
    carts.cancel("back", home=HOME)

    def answers() -> tuple[list[CartAnswer], CartSettled, CartSettled, list[CartRecord]]:
        repeats = [carts.reserve(cart) for cart in (sold, back)]
        records = [replace(carts.read(cart.cart_id, home=HOME), left_ms=0) for cart in (sold, back)]
        return repeats, carts.confirm("sold", home=HOME), carts.cancel("back", home=HOME), records

    before = answers()
    assert [forgotten_cart(pool.plain, gate) for pool in pools] == [2, 2]
    for pool in pools:
        assert store.execute(op.ReadOrders(pool.sku, (sold.order_id, back.order_id))) == (None, None)
    assert answers() == before
    assert [(pool.state().confirmed, pool.state().available) for pool in pools] == [(1, 9), (2, 8)]
    for pool in pools:
        assert pool.audit().drift == ()
        assert audit_both(pool.plain, gate).is_clean


CUSTOMERS: Final = shard_keys(SKU).customers


@pytest.fixture
def limited_pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units, at most three a customer: ann has bought three, bob one, and both orders of ann are forgotten."""
    limited_pool = Pool(store, SKU, outbox=Outbox(publish_after=600))
    Pool(limited_pool.store, limited_pool.sku, gate=gate).open(stock=20, segments=4, limit_per_customer=3)
    sold(limited_pool, gate, Order("a", 2, "ann"))
    sold(limited_pool, gate, Order("b", 1, "ann"))
    for _ in range(3):
        relay(limited_pool, gate, trim_keep=0)
    assert forget(limited_pool, gate, grace=0).units == 3
    sold(limited_pool, gate, Order("c", 1, "bob"))
    return limited_pool


def sold(limited_pool: Pool, gate: Gate, order: Order) -> None:
    settled = take_order(limited_pool, gate, order, timeout=5)
    assert isinstance(settled, Settled)
    assert settled.state == "confirmed"


def test_the_limit_holds_after_a_customers_orders_are_forgotten(limited_pool: Pool, gate: Gate) -> None:
    refused = take_order(limited_pool, gate, Order("d", 1, "ann"), timeout=5)
    assert isinstance(refused, LimitReached)
    assert isinstance(take_order(limited_pool, gate, Order("e", 3, "bob"), timeout=5), LimitReached)
    sold(limited_pool, gate, Order("f", 2, "bob"))
    check(limited_pool, gate, confirmed=6, available=14)


def test_a_repeat_of_a_forgotten_order_is_no_further_purchase(limited_pool: Pool, gate: Gate) -> None:
    sold(limited_pool, gate, Order("a", 2, "ann"))
    sold(limited_pool, gate, Order("b", 1, "ann"))
    check(limited_pool, gate, confirmed=4, available=16)


@pytest.mark.parametrize(
    ("customer", "units", "detail"),
    [
        ("bob", 0, "customer bob has 0 units, the ledger says 1"),
        ("bob", 2, "customers have 4 units beyond their orders, but only 3 of forgotten orders"),
        ("eve", 1, "customers have 4 units beyond their orders, but only 3 of forgotten orders"),
    ],
)
def test_an_audit_names_units_of_customers_that_no_order_explains(
    limited_pool: Pool, store: RedisStore, customer: str, units: int, detail: str
) -> None:
    assert limited_pool.audit().is_clean
    store.client.hset(CUSTOMERS, customer, units)
    assert [one.detail for one in limited_pool.audit().drift] == [detail]


def test_a_repeat_of_a_sold_order_gets_the_databases_answer_and_runs_no_body(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    ran: list[str] = []
    again = take_order(pool, gate, Order("b", 2), timeout=SECONDS, body=lambda grant: ran.append(grant.order_id))
    assert isinstance(again, Settled)
    assert (again.state, again.quantity, again.replay, ran) == ("confirmed", 2, True, [])
    check(pool, gate, confirmed=6, available=13, reserved=1)


def test_a_repeat_of_a_cancelled_order_gets_the_databases_answer_and_runs_no_body(pool: Pool, gate: Gate) -> None:
    assert forgotten(pool, gate) == (4, 6)
    ran: list[str] = []
    again = take_order(pool, gate, Order("x", 4), timeout=SECONDS, body=lambda grant: ran.append(grant.order_id))
    assert isinstance(again, Decided)
    assert (again.state, again.quantity, ran) == ("cancelled", 4, [])
    check(pool, gate, confirmed=6, available=13, reserved=1)
