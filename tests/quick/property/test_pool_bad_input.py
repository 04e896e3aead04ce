"""Whatever a caller gets wrong is refused with one sentence, and not one key of the pool is another afterwards."""

from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from segmented.errors import InvalidInput, OrderMismatch
from segmented.models import QUANTITY_MAX, SEGMENT_COUNT_MAX, STOCK_MAX, Cart, Order, Settled
from segmented.models.ids import is_unseen
from segmented.stock import AsyncPool, Pool
from tests.support.pools.pool_callers import Ask, Caller

pytestmark = pytest.mark.fuzz

EXAMPLES: Final = settings(max_examples=25)
SENTENCE_MAX: Final = 400
CONTROLS: Final = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
HUGE: Final = (10**5_000, -(10**5_000))
"""Python refuses to write these out, so Hypothesis cannot draw them, and an error must not try to tell them."""
NO_HOLDER: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["", b"a", 5, 5.0, True, ("a",), ["a"], {"a": 1}, "x" * 514, "x" * 100_000]),
    st.tuples(TEXT, st.sampled_from(CONTROLS), TEXT).map("".join),
    st.tuples(TEXT, st.characters(categories=["Cs"]), TEXT).map("".join),
    st.binary(max_size=300),
)
NO_ID = NO_HOLDER | st.sampled_from(["x" * 257, "ü" * 129])
"""Nothing in here is an id: too short, too long, binary, no text, with control characters or halves of surrogates."""
NO_ID_OR_NONE = NO_ID | st.none()
NO_COUNT: st.SearchStrategy[Any] = st.one_of(
    st.integers(max_value=0),
    st.integers(min_value=STOCK_MAX + 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=5),
    st.sampled_from([Decimal(1), b"1", [1], 1 + 0j]),
)
NO_COUNT_OR_NONE = NO_COUNT | st.none()
NO_PLACE = NO_COUNT_OR_NONE.filter(lambda bad: type(bad) is not int or not 0 <= bad <= 2**53)
"""Nothing in here is a place in a ledger, or a count that may be 0."""
NO_SECONDS: st.SearchStrategy[Any] = st.one_of(
    st.floats(max_value=0.0),
    st.sampled_from([0, -1, 0.0009, float("nan"), float("inf"), True, "1", b"1", None, 2**53, [1.0]]),
)
NO_TIMEOUT: st.SearchStrategy[Any] = st.one_of(
    st.floats(max_value=-1e-9),
    st.sampled_from([-1, float("nan"), True, False, "1", b"1", [1.0]]),
)
ODD_IDS = st.one_of(
    st.sampled_from(["{", "}", "{a}", "%", "%7B", "%%s", "a b", " ", "票", "'", '"', "\\n", "é" * 128, "x" * 256]),
    st.text(st.characters(codec="utf-8").filter(lambda one: not is_unseen(one)), min_size=1, max_size=60),
)


def first_of(entries: Any) -> Any:  # noqa: ANN401  # an iterator of either colour
    return anext(entries) if hasattr(entries, "__anext__") else next(entries)


ASK_WITH_ID: dict[str, Ask] = {
    "Order": lambda _, bad: Order(bad, 1),
    "Cart": lambda _, bad: Cart(bad, [("mug", 1)]),
    "a cart's sku": lambda _, bad: Cart("new", [("mug", 1), (bad, 1)]),
    "reserve": lambda pool, bad: pool.reserve(bad),
    "grant": lambda pool, bad: pool.grant(bad, timeout=0),
    "reserve_many": lambda pool, bad: pool.reserve_many([Order("new", 1), bad]),
    "confirm": lambda pool, bad: pool.confirm(bad),
    "cancel": lambda pool, bad: pool.cancel(bad),
    "confirm_many": lambda pool, bad: pool.confirm_many(["held", bad]),
    "cancel_many": lambda pool, bad: pool.cancel_many(["held", bad]),
    "restock": lambda pool, bad: pool.restock(1, restock_id=bad),
    "withdraw": lambda pool, bad: pool.withdraw(1, withdraw_id=bad),
}
ASK_WITH_OPTIONAL_ID: dict[str, Ask] = {
    "customer": lambda pool, bad: pool.reserve(Order("new", 1, bad)),
    "a cart's customer": lambda _, bad: Cart("new", [("mug", 1)], bad),
    "grant by a holder": lambda pool, bad: pool.grant("new", timeout=0, holder_id=bad),
}
ASK_WITH_HOLDER: dict[str, Ask] = {
    "confirm by a holder": lambda pool, bad: pool.confirm("held", holder_id=bad),
    "cancel by a holder": lambda pool, bad: pool.cancel("held", holder_id=bad),
}
ASK_WITH_COUNT: dict[str, Ask] = {
    "Order": lambda _, bad: Order("new", bad),
    "Cart": lambda _, bad: Cart("new", [("mug", 1), ("mug", bad)]),
    "reserve": lambda pool, bad: pool.reserve("new", quantity=bad),
    "grant": lambda pool, bad: pool.grant("new", quantity=bad, timeout=0),
    "reserve an order": lambda pool, bad: pool.reserve(Order("new", 7), quantity=bad),
    "grant an order": lambda pool, bad: pool.grant(Order("new", 7), quantity=bad, timeout=0),
    "restock": lambda pool, bad: pool.restock(bad, restock_id="new"),
    "withdraw": lambda pool, bad: pool.withdraw(bad, withdraw_id="new"),
    "resize": lambda pool, bad: pool.resize(bad),
    "change": lambda pool, bad: pool.change("held", quantity=bad),
    "return_units": lambda pool, bad: pool.return_units("held", bad, return_id="new"),
    "expire": lambda pool, bad: pool.expire(limit=bad),
    "open stock": lambda pool, bad: pool.open(stock=bad, segments=2),
    "open segments": lambda pool, bad: pool.open(stock=5, segments=bad),
    "open epoch": lambda pool, bad: pool.open(stock=5, segments=2, epoch=bad),
}
ASK_WITH_PLACE: dict[str, Ask] = {
    "read the ledger": lambda pool, bad: first_of(pool.read_ledger(after=bad)),
    "trim the ledger": lambda pool, bad: pool.trim_ledger(keep=bad),
}
ASK_WITH_OPTIONAL_COUNT: dict[str, Ask] = {
    "open customer limit": lambda pool, bad: pool.open(stock=5, segments=2, limit_per_customer=bad),
}


def is_one_sentence(told: str) -> bool:
    return 0 < len(told) < SENTENCE_MAX and told.isprintable()


def each_is_refused(caller: Caller, asks: dict[str, Ask], bads: st.SearchStrategy[Any]) -> None:
    @EXAMPLES
    @given(ask=st.sampled_from(sorted(asks)), bad=bads, is_async=st.booleans())
    def refused(ask: str, bad: object, *, is_async: bool) -> None:
        pool = list(caller.pools())[is_async]
        assert is_one_sentence(caller.refusal(asks[ask], pool, bad)), ask

    refused()
    for ask in asks.values():
        for huge in HUGE:
            for pool in caller.pools():
                assert is_one_sentence(caller.refusal(ask, pool, huge))


BAD: dict[str, tuple[dict[str, Ask], st.SearchStrategy[Any]]] = {
    "id": (ASK_WITH_ID, NO_ID_OR_NONE),
    "id that may be left out": (ASK_WITH_OPTIONAL_ID, NO_ID),
    "holder": (ASK_WITH_HOLDER, NO_HOLDER),
    "count": (ASK_WITH_COUNT, NO_COUNT_OR_NONE),
    "count that may be left out": (ASK_WITH_OPTIONAL_COUNT, NO_COUNT),
    "place in a ledger": (ASK_WITH_PLACE, NO_PLACE),
    "time": ({"extend": lambda pool, bad: pool.extend("held", seconds=bad)}, NO_SECONDS),
    "waiting time": ({"grant": lambda pool, bad: pool.grant("new", timeout=bad)}, NO_TIMEOUT),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_a_call_cannot_take_is_refused_in_a_sentence_and_changes_nothing(caller: Caller, kind: str) -> None:
    each_is_refused(caller, *BAD[kind])


def test_a_count_beyond_what_its_own_field_can_hold_is_refused(caller: Caller) -> None:
    for ask in ("Order", "reserve", "grant", "expire"):
        for pool in caller.pools():
            caller.refusal(ASK_WITH_COUNT[ask], pool, QUANTITY_MAX + 1)
    for ask in ("resize", "open segments"):
        for pool in caller.pools():
            caller.refusal(ASK_WITH_COUNT[ask], pool, SEGMENT_COUNT_MAX + 1)
    for pool in caller.pools():
        caller.refusal(ASK_WITH_COUNT["open epoch"], pool, 2**20 + 1)


def test_what_is_no_sku_makes_no_pool(caller: Caller) -> None:
    before = caller.keys()

    @EXAMPLES
    @given(bad=(NO_ID | st.none() | st.sampled_from(["x" * 129, "ü" * 65])))
    def refused(bad: Any) -> None:  # noqa: ANN401  # what a caller may get wrong
        for kind in (Pool, AsyncPool):
            with pytest.raises(InvalidInput) as caught:
                kind(caller.store, bad)  # type: ignore[arg-type]  # it does not get as far as the store
            assert is_one_sentence(str(caught.value))

    refused()
    assert caller.keys() == before


def test_what_is_no_time_makes_no_pool(caller: Caller) -> None:
    @EXAMPLES
    @given(bad=NO_SECONDS, which=st.sampled_from(["ttl", "hold"]))
    def refused(bad: Any, which: str) -> None:  # noqa: ANN401  # what a caller may get wrong
        for kind in (Pool, AsyncPool):
            with pytest.raises(InvalidInput) as caught:
                kind(caller.store, "mug", **{"ttl": 1, "hold": 1, which: bad})  # type: ignore[arg-type]  # as above
            assert is_one_sentence(str(caught.value))

    refused()
    for huge in HUGE:
        with pytest.raises(InvalidInput, match=r"\(more than 60 digits\)"):
            Pool(caller.store, "mug", ttl=huge)


def test_one_text_is_not_taken_for_many_ids(caller: Caller) -> None:
    for pool in caller.pools():
        for ask in (lambda pool, bad: pool.confirm_many(bad), lambda pool, bad: pool.cancel_many(bad)):
            told = caller.refusal(ask, pool, "held")
            assert told.startswith("'held' is a single order id; give the orders to be ")


def test_a_bad_id_on_a_later_page_is_refused_before_the_first(caller: Caller) -> None:
    orders = [Order(f"o{index}", 1) for index in range(1_000)]
    for pool in caller.pools():
        caller.refusal(lambda pool, bad: pool.reserve_many([*orders, bad]), pool, "a tab\t")
        caller.refusal(lambda pool, bad: pool.confirm_many(["held"] * 1_000 + [bad]), pool, "a tab\t")
        caller.refusal(lambda pool, bad: pool.cancel_many(["held"] * 1_000 + [bad]), pool, "a tab\t")


def test_an_order_and_another_quantity_beside_it_are_refused(caller: Caller) -> None:
    for pool in caller.pools():
        told = caller.refusal(ASK_WITH_COUNT["reserve an order"], pool, 6)
        assert told == "quantity 6 beside order 'new', which has 7, is not allowed"


def test_an_empty_holder_id_does_not_stand_for_whoever_has_the_order(caller: Caller) -> None:
    for pool in caller.pools():
        told = caller.refusal(lambda pool, bad: pool.cancel("granted", holder_id=bad), pool, "")
        assert told == "holder id '' must have 1 to 513 bytes of UTF-8"


def test_odd_ids_are_sold_confirmed_and_found_again(caller: Caller) -> None:
    pool = next(iter(caller.pools("odd")))
    pool.open(stock=STOCK_MAX, segments=3, limit_per_customer=QUANTITY_MAX)

    @EXAMPLES
    @given(order_id=ODD_IDS, customer=ODD_IDS)
    def sold(order_id: str, customer: str) -> None:
        order = Order(f"{order_id[:80]}", 1, customer[:80])
        try:
            reserved, _ = pool.reserve_many([order, order])
            again = pool.grant(order, timeout=0, holder_id=customer[:80])
        except OrderMismatch:  # an earlier example's
            return
        assert getattr(reserved, "order_id", order.order_id) == order.order_id
        if hasattr(again, "confirm"):
            again.confirm()
        (settled,) = pool.confirm_many([order.order_id])
        assert isinstance(settled, Settled)
        assert (settled.order_id, settled.state) == (order.order_id, "confirmed")

    sold()
    assert pool.audit().is_clean
