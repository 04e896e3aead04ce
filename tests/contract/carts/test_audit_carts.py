"""The audit of carts: a cart under way is never drift, and one that contradicts its lines is named, with its orders."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.models import CartReserved, Order
from segmented.stock.audit import audit_plan
from segmented.stock.cart_plans import finish_carts_plan
from tests.contract.carts.carts import SHORT_MS, Market
from tests.support.pools.carting import ending_before, reserved_and_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import Cart
    from segmented.protocol.carts.operations import CartMove
    from segmented.stock import AuditReport, Pool
    from tests.fixtures.stores import Side

LONG_MS = 600_000


@pytest.fixture
def market(side: Side) -> Market:
    """Ten units each of a, b and c."""
    return opened(side)


@pytest.fixture
def busy_market(waiting_side: Side) -> Iterator[Market]:
    """Forty units each of a, b and c, on stores in which many may call at once."""
    market = opened(waiting_side, 40)
    yield market
    market.check_books()


def opened(side: Side, stock: int = 10) -> Market:
    market = Market(side)
    for letter in "abc":
        market.open(letter, stock)
    return market


def report_of(market: Market, letter: str) -> AuditReport:
    report = market.side.run(audit_plan(market.sku(letter)))[0]
    assert report.unread == ()
    assert report.is_clean == (not report.drift)
    return report


def named(market: Market, letter: str, cart: Cart) -> list[str]:
    """Say what the audit of a pool names, with letters for the skus and the order."""
    told = [str(drift) for drift in report_of(market, letter).drift]
    word = market.sku("")
    return [line.replace(f"order {cart.order_id}:", "order:").replace(word, "") for line in told]


def reserved(market: Market) -> Cart:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.reserved(cart)
    return cart


def decide(market: Market, cart: Cart, state: CartMove, *, finished: bool = False) -> None:
    """Decide a cart as its plan does, without its lines."""
    market.side.execute(op.DecideCart(cart.home, cart.cart_id, state))
    if finished:
        market.side.execute(op.FinishCart(cart.home, cart.cart_id))


def pin(market: Market, cart: Cart, letters: str = "ab") -> None:
    for letter in letters:
        market.side.execute(op.PinOrder(market.sku(letter), cart.order_id, cart.home))


# --- what is no drift ---


@pytest.mark.parametrize("end", ["confirm", "cancel"])
@pytest.mark.parametrize("step", range(1, 18))
def test_a_cart_whose_process_died_before_any_step_is_no_drift_and_neither_is_what_finishes_it(
    market: Market, end: str, step: int
) -> None:
    cart = market.cart("cut", ("a", 1), ("b", 2), ("c", 3))
    market.side.run(ending_before(reserved_and_ended(cart, end, SHORT_MS), step, lambda: None))
    assert [report_of(market, letter).drift for letter in "abc"] == [(), (), ()]
    market.side.pass_time(0.0 if market.side.server is not None else 100.0)
    for letter in "abc":
        market.shops[letter].expire_due()
        assert report_of(market, letter).drift == ()
    market.side.run(finish_carts_plan(cart.home, 10))
    assert [report_of(market, letter).drift for letter in "abc"] == [(), (), ()]


@pytest.mark.parametrize("state", ["confirmed", "cancelled", "expired"])
def test_a_cart_that_was_decided_between_the_pins_and_the_lines_is_no_drift(market: Market, state: CartMove) -> None:
    cart = reserved(market)
    pin(market, cart)
    decide(market, cart, state)
    assert [report_of(market, letter).drift for letter in "ab"] == [(), ()]
    (market.shops["b"].confirm if state == "confirmed" else market.shops["b"].cancel)(cart.order_id)
    assert [report_of(market, letter).drift for letter in "ab"] == [(), ()]


def test_a_late_line_of_a_cart_that_is_void_and_finished_is_no_drift(market: Market) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.side.execute(op.OpenCart(cart, LONG_MS))
    market.cancel(cart)
    market.side.execute(op.Reserve(market.sku("b"), Order(cart.order_id, 2), LONG_MS))
    assert market.read(cart).is_finished
    assert [report_of(market, letter).drift for letter in "ab"] == [(), ()]


def test_a_busy_sale_of_carts_audited_in_a_loop_names_nothing(busy_market: Market) -> None:
    market = busy_market
    word = market.side.name("busy")

    def buyer(number: int) -> None:
        for index in range(6):
            cart = market.cart(f"{word}-{number}-{index}", *((letter, 1) for letter in "abc"[index % 2 :]))
            if isinstance(market.reserve(cart), CartReserved) and index % 3:
                (market.confirm if index % 3 == 1 else market.cancel)(cart)

    def sweeper() -> None:
        for letter in "abab":
            market.carts().finish(market.sku(letter))

    calls = [market.side.start(partial(buyer, number)) for number in range(8)]
    calls += [market.side.start(sweeper) for _ in range(2)]
    audits = 0
    while not all(call.done() for call in calls) or audits < 3:
        for letter in "abc":
            assert report_of(market, letter).drift == ()
        audits += 1
    for call in calls:
        call.result(30)
    assert all(total[2] > 0 for total in market.totals().values())


# --- carts against their lines ---


@pytest.mark.parametrize("end", ["confirm", "cancel"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_line_that_somebody_ended_under_a_cart_under_way_is_named(market: Market, end: str, *, is_open: bool) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    if is_open:
        market.side.execute(op.OpenCart(cart, LONG_MS))
        market.side.execute(op.Reserve(market.sku("b"), Order(cart.order_id, 2), LONG_MS))
    else:
        market.reserved(cart)
    (market.shops["b"].confirm if end == "confirm" else market.shops["b"].cancel)(cart.order_id)
    what = f"{'open' if is_open else 'reserved'}, but its order in pool 'b' was {end}{'l' * (end == 'cancel')}ed"
    assert named(market, "a", cart) == [f"torn cart: order: cart 'c1' is {what} all the same"]
    assert named(market, "b", cart) == []


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_sold_cart_of_which_a_line_was_given_back_is_named(market: Market, letter: str) -> None:
    cart = reserved(market)
    pin(market, cart)
    decide(market, cart, "confirmed")
    market.shops[letter].cancel(cart.order_id)
    what = f"its order in pool '{letter}' was cancelled, so the buyer lacks those units"
    assert named(market, "a", cart) == [f"torn cart: order: cart 'c1' is confirmed, but {what}"]


@pytest.mark.parametrize("state", ["cancelled", "expired", "refused"])
def test_a_void_cart_of_which_a_line_was_sold_is_named(market: Market, state: CartMove) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.side.execute(op.OpenCart(cart, LONG_MS))
    market.shops["b"].reserved(cart.order_id, 2)
    decide(market, cart, state)
    market.shops["b"].confirm(cart.order_id)
    what = "its order in pool 'b' was confirmed, so those units are sold"
    assert named(market, "a", cart) == [f"torn cart: order: cart 'c1' is {state}, but {what}"]


def test_a_sold_cart_of_which_a_line_may_lapse_is_named_until_it_is_confirmed(market: Market) -> None:
    cart = reserved(market)
    pin(market, cart, "a")
    decide(market, cart, "confirmed")
    what = "its order in pool 'b' may expire: confirm the cart again, or it there"
    assert named(market, "a", cart) == [f"torn cart: order: cart 'c1' is confirmed, but {what}"]
    market.confirm(cart)
    assert named(market, "a", cart) == []


@pytest.mark.parametrize(("state", "end"), [("confirmed", "confirm"), ("cancelled", "cancel"), ("expired", "cancel")])
def test_a_hold_that_a_finished_cart_has_left_is_named_in_both_pools_and_ended_by_hand(
    market: Market, state: CartMove, end: str
) -> None:
    cart = reserved(market)
    pin(market, cart)
    decide(market, cart, state, finished=True)
    what = "on hold: confirm" if end == "confirm" else "on hold forever: cancel"
    assert named(market, "a", cart) == [
        f"leaked hold: order: cart 'c1' is {state} and finished, but its order in pool '{letter}' is {what} it there"
        for letter in "ab"
    ]
    said = f"it is on hold forever, though cart 'c1' of 'a' is {state} and finished: {end} it"
    assert named(market, "b", cart) == [f"leaked hold: order: {said}"]
    for letter in "ab":
        getattr(market.shops[letter], end)(cart.order_id)
    assert [named(market, letter, cart) for letter in "ab"] == [[], []]


def test_a_cart_that_has_no_order_is_named(market: Market) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.side.execute(op.OpenCart(cart, LONG_MS))
    market.shops["a"].reserved(cart.order_id)
    decide(market, cart, "reserved")
    assert named(market, "a", cart) == ["torn cart: order: cart 'c1' is reserved, but its order in pool 'b' is gone"]


def test_a_cart_that_no_sweep_would_find_is_named_until_it_is_ended(market: Market) -> None:
    cart = reserved(market)
    market.side.execute(op.FinishCart(cart.home, cart.cart_id))
    told = "lost: cart 'c1' is reserved, but no sweep knows of it: confirm or cancel the cart"
    assert named(market, "a", cart) == [told]
    market.cancel(cart)
    assert named(market, "a", cart) == []


# --- orders that are pinned for nobody ---


@pytest.mark.parametrize("letter", ["a", "b"])
def test_an_order_pinned_for_a_cart_that_its_home_does_not_know_is_named_until_it_is_ended(
    market: Market, letter: str
) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.shops[letter].reserved(cart.order_id)
    pin(market, cart, letter)
    told = "it is on hold forever for cart 'c1', unknown in its home 'a': cancel or confirm it"
    assert named(market, letter, cart) == [f"leaked hold: order: {told}"]
    (drift,) = report_of(market, letter).drift
    assert (drift.order_id, drift.name, drift.about) == (cart.order_id, "c1", "cart")
    market.shops[letter].cancel(cart.order_id)
    assert named(market, letter, cart) == []


def test_an_order_pinned_for_another_cart_of_the_same_id_is_named(market: Market) -> None:
    other, cart = market.cart("c1", ("a", 1), ("b", 1)), reserved(market)
    market.shops["b"].reserved(other.order_id)
    pin(market, other, "b")
    told = "it is on hold forever for cart 'c1', unknown in its home 'a': cancel or confirm it"
    assert named(market, "b", other) == [f"leaked hold: order: {told}"]
    assert named(market, "a", cart) == []


def test_an_order_pinned_for_a_cart_of_a_pool_that_is_not_open_is_named(market: Market) -> None:
    cart = market.cart("c1", ("Z", 1), ("b", 2))
    market.shops["b"].reserved(cart.order_id)
    pin(market, cart, "b")
    told = "it is on hold forever for a cart of 'Z', but that pool is not open: cancel or confirm it"
    assert named(market, "b", cart) == [f"leaked hold: order: {told}"]


def test_an_order_pinned_for_no_cart_is_named(market: Market) -> None:
    market.shops["b"].reserved("plain")
    market.side.execute(op.PinOrder(market.sku("b"), "plain", market.sku("a")))
    (drift,) = report_of(market, "b").drift
    assert (drift.kind, drift.order_id) == ("leaked hold", "plain")
    assert drift.detail.startswith("it is on hold forever, but its record names no cart: ")


def test_a_repair_leaves_carts_as_they_are_and_says_why(market: Market) -> None:
    cart = reserved(market)
    pin(market, cart)
    decide(market, cart, "confirmed", finished=True)
    pool: Pool = market.side.pool(market.sku("b"))
    done = pool.repair(pool.audit(), yes=True)
    assert (done.done_count, done.is_clean) == (0, False)
    (repair,) = done.repairs
    assert repair.order_id == cart.order_id
    assert repair.detail.endswith("confirm it: cannot be mended from the ledger, which does not record carts")
    pool.confirm(cart.order_id)
    assert pool.audit().is_clean
