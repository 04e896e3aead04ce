"""Accepting orders: what they are and their place in the outbox are written in one step, and leave in one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, OrderMismatch, OrderQueued, OrderUnknown, PoolGated, PoolMissing
from segmented.events import traces
from segmented.models import Closed, Order, Reserved, Settled, SoldOut
from segmented.models.orders import decided_as
from segmented.models.submitted import Deciding, OutboxState, Queued
from segmented.stock import AsyncPool, Outbox, Pool
from segmented.stock.outbox import SweepTerms, sweep
from segmented.stores.memory import MemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.carts.carts import CartPools
from tests.support.contract.orders.submitting import (
    begin_and_die,
    begun,
    named,
    outbox,
    put_off,
    queue,
    submit,
    submitted,
    take,
    waiting,
)
from tests.support.contract.pools.shop import SHORT_MS, Shop

A, B = Order("a", 2), Order("b", 1, "ann")


# --- units taken at acceptance ---


def test_orders_submitted_one_by_one_are_from_one_segment_for_a_run_of_64_changes(shop: Shop) -> None:
    shop.open(900, 3)
    found = [submit(shop, Order(f"o{number}", 1))[0] for number in range(130)]
    segments = [answer.segment for answer in found if isinstance(answer, Reserved)]
    assert segments == [0] * 63 + [1] * 64 + [2] * 3  # opening the pool was the first change


def test_a_repeat_does_not_put_the_publication_off(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, A, after_ms=SHORT_MS)
    queue(shop, B, after_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    submit(shop, A)
    queue(shop, B)
    assert outbox(shop).due == 2


def test_a_repeat_of_a_reservation_that_was_not_submitted_gets_a_place(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 2)
    assert waiting(shop) == 0
    assert submit(shop, A) == (Reserved("a", 2, 1, ((1, 2),), 1, 2, replay=True),)
    assert waiting(shop) == 1


def test_a_reservation_that_is_submitted_later_does_not_lapse_any_more(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", hold_ms=SHORT_MS)
    assert named(queue(shop, Order("a", 1))) == ["Reserved"]
    shop.let_short_holds_lapse()
    assert shop.due() == ()


def test_what_is_refused_at_the_door_leaves_nothing(shop: Shop) -> None:
    shop.open(2, 2)
    assert submit(shop, Order("a", 3)) == (SoldOut("a", 3, 2, 0, 1),)
    shop.close()
    assert submit(shop, Order("b", 1)) == (Closed("b"),)
    assert queue(shop, Order("b", 1)) == (Closed("b"),)
    assert outbox(shop) == OutboxState(0, 0, 0, 0)
    assert [submitted(shop, order_id).state for order_id in "ab"] == ["unknown", "unknown"]


# --- units taken by a worker ---


def test_a_queued_order_that_comes_again_is_told_so_also_in_its_own_call(shop: Shop) -> None:
    shop.open(9, 3)
    assert queue(shop, A, A) == (Queued("a", replay=False), Queued("a", replay=True))
    assert queue(shop, A) == (Queued("a", replay=True),)
    assert waiting(shop) == 1


def test_a_pool_that_limits_customers_queues_none_without_a_name(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    refused, accepted = queue(shop, A, B)
    assert isinstance(refused, InvalidInput)
    assert str(refused) == f"order 'a' names no customer, but pool '{shop.sku}' limits what one may have"
    assert accepted == Queued("b", replay=False)


@pytest.mark.parametrize(
    "operation",
    [
        op.QueueOrders("nowhere", (A,), 1),
        op.TakeOrders("nowhere", ("a",), "w", 1, 1, 1, 5),
        op.PutOff("nowhere", ("a",), "w", 1, counts=True, begun_max=5, reason=""),
        op.RenewWork("nowhere", ("a",), "w", 1, 1, 1),
        op.SweepOutbox("nowhere", 1, None, 1, 1, 1, 5),
        op.ReadOutbox("nowhere"),
        op.ReplayDead("nowhere", ("a",)),
        op.ReserveMany("nowhere", (A,), 1, publish_after_ms=1),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_pool_that_is_not_open_is_missing(side: Side, operation: op.Operation[object]) -> None:
    with pytest.raises(PoolMissing):
        side.execute(operation)


# --- other content ---


@pytest.mark.parametrize("other", [Order("a", 3), Order("a", 2, "ann")], ids=["quantity", "customer"])
def test_other_content_under_the_id_of_a_queued_order_is_a_mismatch_for_all(shop: Shop, other: Order) -> None:
    shop.open(9, 3)
    queue(shop, A)
    assert named(queue(shop, other, B)) == ["OrderMismatch", "Queued"]
    assert named(submit(shop, other)) == ["OrderMismatch"]
    with pytest.raises(OrderMismatch):
        shop.reserve("a", other.quantity, customer_id=other.customer_id)
    with pytest.raises(OrderMismatch):
        shop.grant("a", other.quantity, customer_id=other.customer_id)
    assert shop.totals() == (9, 0, 0)
    assert waiting(shop) == 2


def test_a_queued_order_is_cancelled_without_units_and_for_good(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, A, B)
    assert shop.cancel("a") == Settled("a", "cancelled", 0, -1, None, 2, replay=False)
    again = Settled("a", "cancelled", 0, -1, None, 2, replay=True)
    assert shop.cancel("a") == again
    assert queue(shop, A) == (decided_as(again),)
    assert named(queue(shop, Order("a", 3))) == ["OrderMismatch"]
    assert shop.cancel_many("b", "b", "nobody")[:2] == (
        Settled("b", "cancelled", 0, -1, None, 3, replay=False),
        Settled("b", "cancelled", 0, -1, None, 3, replay=True),
    )
    assert (waiting(shop), shop.totals()) == (0, (9, 0, 0))


def test_a_queued_order_of_a_gated_pool_is_voided_first(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    queue(shop, A)
    with pytest.raises(PoolGated):
        shop.cancel("a")
    assert shop.cancel("a", voided=True).quantity == 0  # type: ignore[union-attr]  # nobody else has it


# --- leaving ---


@pytest.mark.parametrize("end", ["confirm", "cancel", "confirm_many", "cancel_many"])
@pytest.mark.parametrize("by_worker", [False, True], ids=["at acceptance", "in the worker"])
def test_who_ends_an_order_takes_it_out_of_the_outbox_in_the_same_step(
    shop: Shop, end: str, *, by_worker: bool
) -> None:
    shop.open(9, 3)
    (queue if by_worker else submit)(shop, A, B)
    begin_and_die(shop, "a")
    assert submitted(shop, "a").begun == 1
    getattr(shop, end)("a")
    found = submitted(shop, "a")
    assert (found.begun, found.published, found.is_in_outbox) == (0, 0, False)
    assert waiting(shop) == 1


def test_an_order_in_the_outbox_does_not_expire_and_a_dead_one_does(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, A, B, hold_ms=SHORT_MS)
    begun(shop, "b")
    put_off(shop, "b", begun_max=1, hold_ms=1)
    shop.let_short_holds_lapse()
    assert shop.expire("a") is None
    settled, _ = shop.expire_due()
    assert [one.order_id for one in settled] == ["b"]
    assert (waiting(shop), submitted(shop, "b").state) == (1, "expired")


def test_a_kept_refusal_takes_the_order_out_of_the_outbox(shop: Shop) -> None:
    shop.open(2, 2)
    queue(shop, Order("a", 3))
    shop.grant("a", 3, keep_refusal=True)
    assert submitted(shop, "a").state == "refused"
    assert waiting(shop) == 0


# --- the pools that orders were submitted to ---


def test_a_thousand_orders_are_accepted_in_one_step(shop: Shop) -> None:
    shop.open(1_000, 7)
    assert set(named(submit(shop, *(Order(f"o{number}", 1) for number in range(1_000))))) == {"Reserved"}
    assert waiting(shop) == 1_000
    assert shop.state().sequence == 2


def test_a_queued_order_cannot_be_confirmed_before_a_worker_has_decided_it(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, A)
    for call in (shop.confirm, shop.expire):
        with pytest.raises(OrderQueued):
            call("a")
    assert named(shop.confirm_many("a", "nobody")) == ["OrderQueued", "OrderUnknown"]
    assert waiting(shop) == 1


# A message finishes submitted orders only: one that names a reservation, a grant or a cart's line changes nothing.


def confirm_idle(shop: Shop, *order_ids: str) -> list[str]:
    """Confirm as a worker does first, orders whose units were taken at acceptance."""
    return named(shop.side.execute(op.SettleMany(shop.sku, "confirmed", order_ids, idle=True)))


def test_an_order_that_was_reserved_otherwise_is_not_confirmed_by_a_message(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve("reserved", 1)
    submit(shop, Order("submitted", 2))
    queue(shop, Order("queued", 3))
    assert confirm_idle(shop, "reserved", "submitted", "queued") == ["OrderQueued", "Settled", "OrderQueued"]
    assert shop.totals() == (6, 1, 2)
    assert named(take(shop, "reserved", "queued").orders) == ["OrderUnknown", "BegunOrder"]
    assert shop.totals() == (3, 4, 2)


def test_a_granted_order_whose_lease_is_over_is_not_begun_by_a_message(shop: Shop) -> None:
    shop.open(9, 3)
    shop.grant("a", 1, ttl_ms=1)
    shop.side.pass_time(0.003)
    assert confirm_idle(shop, "a") == ["OrderQueued"]
    assert named(take(shop, "a").orders) == ["OrderUnknown"]
    assert shop.totals() == (8, 1, 0)


def test_a_cart_whose_line_a_message_names_is_cancelled_whole(side: Side) -> None:
    pools = CartPools(side)
    for letter in "ab":
        pools.open(letter, 10)
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    for letter in "ab":
        assert confirm_idle(pools.shops[letter], cart.order_id) == ["OrderQueued"]
        assert named(take(pools.shops[letter], cart.order_id).orders) == ["OrderUnknown"]
    pools.cancel(cart)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    pools.check_books()


# Submitting through the pool, and waiting for what becomes of an order, in both colours of both stores.


DEADLINE = 60.0
BOTH: list[Deciding] = ["at acceptance", "in the worker"]


class RecordingPublisher:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, tuple[str, ...], int | None]] = []

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        self.given.append((sku, tuple(order_ids), segment))

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Not called here."""

    def room(self) -> int | None:
        return None


def opened(
    side: Side, decides: Deciding = "at acceptance", *, stock: int = 9, publisher: RecordingPublisher | None = None
) -> tuple[Pool, Shop]:
    sku = side.name()
    outbox = Outbox(publisher, decides=decides)
    pool: Pool = side.made(
        lambda store: Pool(store, sku, outbox=outbox), lambda store: AsyncPool(store, sku, outbox=outbox)
    )
    pool.open(stock=stock, segments=3)
    return pool, Shop(side, sku)


def decide(shop: Shop, *order_ids: str) -> None:
    take(shop, *order_ids)
    shop.confirm_many(*order_ids)


@pytest.mark.parametrize("decides", BOTH)
def test_submitted_orders_are_told_to_the_publisher_once(side: Side, decides: Deciding) -> None:
    publisher = RecordingPublisher()
    pool, shop = opened(side, decides, publisher=publisher)
    pool.submit("a", quantity=2)
    handle = pool.submit("a", quantity=2)
    pool.submit(Order("b", 1))
    assert handle.state == ("reserved" if decides == "at acceptance" else "queued")
    assert handle.outcome is None
    assert [given[:2] for given in publisher.given] == [(shop.sku, ("a",)), (shop.sku, ("b",))]
    assert waiting(shop) == 2
    assert shop.sku in side.execute(op.ListOutboxes())
    shop.check_books()


def test_an_order_that_nobody_submitted_is_unknown_at_once(side: Side) -> None:
    pool, _ = opened(side)
    handle = pool.handle("nobody")
    with pytest.raises(OrderUnknown):
        handle.wait(timeout=None)
    assert handle.refresh() == "unknown"
    with pytest.raises(InvalidInput, match=r"^order id '' must have 1 to 256 bytes of UTF-8$"):
        pool.handle("")


@pytest.mark.parametrize("decides", BOTH)
def test_other_content_is_a_mismatch_in_its_place(side: Side, decides: Deciding) -> None:
    pool, shop = opened(side, decides)
    pool.submit("a")
    with pytest.raises(OrderMismatch):
        pool.submit("a", quantity=2)
    answers = pool.submit_many([Order("a", 2), Order("b", 1)])
    assert isinstance(answers[0], OrderMismatch)
    assert waiting(shop) == 2


# The outbox keeps the trace in which an order was submitted, so that a sweep which publishes it again continues it.


@dataclass
class Sent:
    """A sender that keeps the headers of each message."""

    headers: list[object] = field(default_factory=list)

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.headers.append(traces.CURRENT.traces.headers(sku, order_ids))

    def room(self) -> int | None:
        return None


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    provider = TracerProvider()
    traces.install(provider)
    yield provider.get_tracer("shop")
    traces.uninstall()


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
def test_an_order_that_a_sweep_publishes_continues_its_trace(tracer: Tracer, decides: Deciding) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "poster", outbox=Outbox(decides=decides))
    pool.open(stock=10, segments=2)
    with tracer.start_as_current_span("checkout") as span:
        pool.submit("a")
    pool.submit("untraced")
    found = span.get_span_context()
    context = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    sent = Sent()
    for _ in range(2):
        clock.advance(600.0)
        sweep(store.execute, "poster", sent, terms=SweepTerms())
    assert sent.headers == [{traces.HEADER: [context]}] * 2
    assert pool.audit().is_clean


def test_without_a_trace_nothing_is_kept() -> None:
    store = MemoryStore()
    pool = Pool(store, "poster", outbox=Outbox())
    pool.open(stock=10, segments=2)
    with TracerProvider().get_tracer("shop").start_as_current_span("checkout"):
        pool.submit("a")
    assert store.model.ask("EXISTS", "seg:{poster:0}:entries") == 0
