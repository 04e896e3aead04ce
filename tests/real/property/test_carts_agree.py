"""Carts on Redis answer as the store in memory does; and any sequence of carts sells what a plain count would sell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import (
    Cart,
    CartLine,
    CartRecord,
    CartRefused,
    CartReserved,
    Closed,
    LineRefusal,
    Order,
    SoldOut,
    UnfinishedCarts,
)
from segmented.plans import run_sync
from segmented.protocol.wire import Dialect
from segmented.stock import Carts, Pool
from segmented.stock.audit import audit_plan
from segmented.stock.cart_plans import cancel_cart_plan, confirm_cart_plan, finish_carts_plan, reserve_cart_plan
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LONG_MS, SETTINGS, Agreement

if TYPE_CHECKING:
    from segmented.protocol.carts.operations import CartMove

SHORT_MS: Final = 2
CART_IDS = st.sampled_from(["c1", "ü {%}"])
PLACES = st.sampled_from([0, 0, 0, 1, 2])
MOVES = st.sampled_from(["reserved", "refused", "cancelled", "expired", "confirmed"])
LIVES = st.sampled_from([SHORT_MS, LONG_MS])
QUANTITIES = st.sampled_from([1, 1, 2, 3, 7])
LINES = st.lists(st.tuples(PLACES, QUANTITIES), min_size=1, max_size=4)
CUSTOMERS = st.sampled_from([None, "ann"])

_ids = count()


def lapsed_or_not(record: CartRecord) -> CartRecord:
    return replace(record, left_ms=min(record.left_ms, 1))


def timeless(answer: object) -> object:
    """Leave out how long a cart has left; keep whether it has lapsed."""
    match answer:
        case CartRecord():
            return lapsed_or_not(answer)
        case UnfinishedCarts(carts=carts):
            found = (replace(one, record=lapsed_or_not(one.record), due_in_ms=int(not one.is_due)) for one in carts)
            return replace(answer, carts=tuple(found))
        case tuple():
            return tuple(timeless(one) for one in answer)
    return answer


class CartsAgree(Agreement):
    """Three pools, and carts over them by single operations and by plans."""

    def sku(self, place: int) -> str:
        return f"{self.name}-{place}"

    def cart(self, cart_id: str, lines: list[tuple[int, int]], customer: str | None) -> Cart:
        return Cart(cart_id, [(self.sku(place), quantity) for place, quantity in lines], customer)

    def agree_on(self, operation: op.Operation[Any]) -> None:
        self.agree(lambda store: store.execute(operation), operation)

    def agree_on_plan(self, make: Any) -> None:  # noqa: ANN401  # makes a plan of any outcome
        self.agree(lambda store: run_sync(make(), store), make)

    def agree(self, ask: Any, what: object) -> None:  # noqa: ANN401  # asks a store, answers anything
        answers: list[object] = []
        for store in (self.memory, self.redis):
            try:
                answers.append(timeless(ask(store)))
            except SegmentedError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1], what
        super().agree_on(op.ReadPool(self.sku(0)))  # and let time pass

    @initialize(stock=st.sampled_from([3, 12]), limit=st.sampled_from([None, 4]))
    def open(self, stock: int, limit: int | None) -> None:
        for place in range(3):
            self.agree_on(op.OpenPool(self.sku(place), stock, 2, gated=False, limit_per_customer=limit))

    @rule(cart_id=CART_IDS, lines=LINES, customer=CUSTOMERS, hold_ms=LIVES)
    def open_cart(self, cart_id: str, lines: list[tuple[int, int]], customer: str | None, hold_ms: int) -> None:
        self.agree_on(op.OpenCart(self.cart(cart_id, lines, customer), hold_ms))

    @rule(place=PLACES, cart_id=CART_IDS, moves=st.lists(MOVES, min_size=1, max_size=3), stored=st.booleans())
    def decide(self, place: int, cart_id: str, moves: list[CartMove], *, stored: bool) -> None:
        for state in moves:
            refusal = LineRefusal(self.sku(place), Closed("x")) if state == "refused" else None
            self.agree_on(op.DecideCart(self.sku(place), cart_id, state, refusal, stored))

    @rule(place=PLACES, cart_id=CART_IDS)
    def read(self, place: int, cart_id: str) -> None:
        self.agree_on(op.ReadCart(self.sku(place), cart_id))

    @rule(place=PLACES, cart_id=CART_IDS)
    def finish(self, place: int, cart_id: str) -> None:
        self.agree_on(op.FinishCart(self.sku(place), cart_id))

    @rule(place=PLACES, limit=st.sampled_from([1, 100]), skip=st.sampled_from([0, 1]))
    def list_due(self, place: int, limit: int, skip: int) -> None:
        self.agree_on(op.ListDueCarts(self.sku(place), limit, skip))

    @rule(hold_ms=LIVES)
    def list_all(self, hold_ms: int) -> None:
        for cart_id in ("c1", "c2", "c3"):
            self.agree_on(op.OpenCart(self.cart(cart_id, [(0, 1)], None), hold_ms))
        for limit in (1, 100):
            self.agree_on(op.ListCarts(self.sku(0), limit))

    @rule(place=PLACES, order_id=CART_IDS, hold_ms=LIVES)
    def pin(self, place: int, order_id: str, hold_ms: int) -> None:
        self.agree_on(op.PinOrder(self.sku(place), order_id, self.sku(0)))
        self.agree_on(op.Reserve(self.sku(place), Order(order_id, 1, "bob"), hold_ms))
        self.agree_on(op.PinOrder(self.sku(place), order_id, self.sku(0)))
        self.agree_on(op.ExpireDue(self.sku(place), 10))

    @rule(cart_id=CART_IDS, lines=LINES, customer=CUSTOMERS)
    def reserve_by_plan(self, cart_id: str, lines: list[tuple[int, int]], customer: str | None) -> None:
        cart = self.cart(cart_id, lines, customer)
        self.agree_on_plan(lambda: reserve_cart_plan(cart, LONG_MS, {}))

    @rule(place=PLACES, cart_id=CART_IDS, make=st.sampled_from([confirm_cart_plan, cancel_cart_plan]))
    def end_by_plan(self, place: int, cart_id: str, make: Any) -> None:  # noqa: ANN401  # one of two plans
        self.agree_on_plan(lambda: make(self.sku(place), cart_id))

    @rule(place=PLACES)
    def sweep(self, place: int) -> None:
        self.agree(lambda store: _swept(store, self.sku(place)), place)
        self.agree_on(op.ListDueCarts(self.sku(place), 100))

    @rule(place=PLACES, key=st.sampled_from(["carts", "unfinished"]))
    def inspect(self, place: int, key: Any) -> None:  # noqa: ANN401  # one of two names
        self.agree_on(op.InspectCarts(self.sku(place), ("c1", "nobody", "ü {%}")))
        self.agree(lambda store: sorted(store.execute(op.ScanCarts(self.sku(place), key, 0))[1]), key)
        self.agree(lambda store: sorted(store.execute(op.ScanPinned(self.sku(place), 0))[1]), place)

    def teardown(self) -> None:
        """Compare the ledgers, and audit every pool of both."""
        for place in range(3):
            self.agree(lambda store, place=place: _story(store, self.sku(place)), place)
            self.agree(lambda store, place=place: _audited(store, self.sku(place)), place)


def _swept(store: Any, home: str) -> tuple[object, ...]:  # noqa: ANN401  # either store
    found = run_sync(finish_carts_plan(home, 100), store)
    failed = sorted((cart_id, str(error)) for cart_id, error in found.failed)
    return sorted((one.cart_id, one.state, one.replay) for one in found.finished), failed


def _audited(store: Any, sku: str) -> list[str]:  # noqa: ANN401  # either store
    """Audit: carts were moved, and orders pinned, by hand, so that these may be named; nothing else may be."""
    report, _ = run_sync(audit_plan(sku), store)
    assert (report.refused_wrongly, report.oversold) == (0, 0)
    assert {one.about for one in report.drift} <= {"cart"}, report.drift
    return sorted(f"{one.name} {one}" for one in report.drift)


def _story(store: Any, sku: str) -> tuple[object, ...]:  # noqa: ANN401  # either store
    return tuple((entry.kind, entry.order_id, entry.parts) for entry in store.execute(op.ReadLedger(sku, 0, 1_000)))


def test_carts_on_redis_answer_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        machine = partial(CartsAgree, store)
        run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class


CARTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6)), min_size=1, max_size=6),
        st.sampled_from(["confirm", "cancel", "keep"]),
    ),
    max_size=12,
)


def sold_by_counting(store: MemoryStore | RedisStore, wanted: list[tuple[list[CartLine], str]]) -> None:
    """Sell carts one after the other, beside a count in a dictionary."""
    word = f"counted-{next(_ids)}"
    free = {f"{word}-{letter}": 12 for letter in "abc"}
    taken = dict.fromkeys(free, 0)
    for sku in free:
        Pool(store, sku).open(stock=12, segments=4)
    carts = Carts(store, hold=600)
    for index, (lines, end) in enumerate(wanted):
        sums: dict[str, int] = {}
        for letter, quantity in lines:
            sku = f"{word}-{letter}"
            sums[sku] = sums.get(sku, 0) + quantity
        cart = Cart(f"c{index}", [(f"{word}-{letter}", quantity) for letter, quantity in lines])
        answer = carts.reserve(cart)
        too_few = [sku for sku in sorted(sums) if sums[sku] > free[sku]]
        if too_few:
            assert isinstance(answer, CartRefused)
            assert isinstance(answer.refusal, SoldOut)
            assert (answer.sku, answer.refusal.quantity) == (too_few[0], sums[too_few[0]])
            assert answer.refusal.available == free[too_few[0]]
        else:
            assert isinstance(answer, CartReserved)
            assert dict(answer.lines) == sums
            if end == "cancel":
                assert carts.cancel(cart.cart_id, home=cart.home).state == "cancelled"
            else:
                for sku, quantity in sums.items():
                    free[sku] -= quantity
                    taken[sku] += quantity if end == "confirm" else 0
            if end == "confirm":
                assert carts.confirm(cart.cart_id, home=cart.home).state == "confirmed"
    for sku, units in free.items():
        state = Pool(store, sku).state()
        assert (state.available, state.confirmed) == (units, taken[sku])
        assert Pool(store, sku).audit().is_clean


@given(wanted=CARTS)
@settings(deadline=None)
def test_27_random_carts_sell_what_a_plain_count_sells_in_memory(wanted: list[tuple[list[CartLine], str]]) -> None:
    sold_by_counting(MemoryStore(), wanted)


def test_27_random_carts_sell_what_a_plain_count_sells_on_redis(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:

        @given(wanted=CARTS)
        @settings(deadline=None, max_examples=6)
        def sold(wanted: list[tuple[list[CartLine], str]]) -> None:
            sold_by_counting(store, wanted)

        sold()
