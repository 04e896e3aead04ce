"""Any sequence of carts sells what a plain count would sell."""

from itertools import count

from hypothesis import given, settings, strategies as st

from segmented.models import Cart, CartLine, CartRefused, CartReserved, SoldOut
from segmented.stock import Carts, Pool
from segmented.stores.memory import MemoryStore

_ids = count()
CARTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6)), min_size=1, max_size=6),
        st.sampled_from(["confirm", "cancel", "keep"]),
    ),
    max_size=12,
)


def sold_by_counting(store: MemoryStore, wanted: list[tuple[list[CartLine], str]]) -> None:
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
def test_27_random_carts_sell_what_a_plain_count_sells(wanted: list[tuple[list[CartLine], str]]) -> None:
    sold_by_counting(MemoryStore(), wanted)
