"""Merged calls are answered as calls one by one."""

import asyncio
import itertools
from typing import Any, Final

from hypothesis import HealthCheck, given, settings, strategies as st

from segmented.errors import AlreadySettled, OrderMismatch, OrderUnknown
from segmented.models import Decided, Order, Reserved, Settled, SoldOut
from segmented.stock import AsyncPool
from segmented.stores.memory import AsyncMemoryStore

CALLS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from("abcde"), st.integers(1, 4), st.booleans()),
        st.tuples(st.sampled_from(["confirm", "cancel"]), st.sampled_from("abcde"), st.just(0), st.just(False)),  # noqa: FBT003  # a strategy of one value
    ),
    max_size=12,
)


async def _ask(pool: AsyncPool, call: tuple[str, str, int, bool]) -> Any:  # noqa: ANN401  # any answer or failure
    kind, order_id, quantity, partial = call
    try:
        if kind == "reserve":
            return await pool.reserve(order_id, quantity=quantity, partial=partial)
        return await (pool.confirm(order_id) if kind == "confirm" else pool.cancel(order_id))
    except (AlreadySettled, OrderMismatch, OrderUnknown) as error:
        return type(error), str(error)


@given(rounds=st.lists(CALLS, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_merged_calls_are_answered_as_calls_one_by_one(rounds: list[list[tuple[str, str, int, bool]]]) -> None:
    """Calls of one kind keep their order; so each round is of one kind at a time."""

    async def compare() -> None:
        merged, single = (AsyncPool(AsyncMemoryStore(), "sku") for _ in range(2))
        for pool in (merged, single):
            await pool.open(stock=7, segments=3)
        for calls in rounds:
            for _, group in itertools.groupby(calls, key=lambda call: (call[0], call[3])):
                alike = list(group)
                together = await asyncio.gather(*(_ask(merged, call) for call in alike))
                alone = [await _ask(single, call) for call in alike]
                assert [_essence(answer) for answer in together] == [_essence(answer) for answer in alone]
        states = [await pool.state() for pool in (merged, single)]
        totals = [(state.available, state.reserved, state.confirmed, state.order_count) for state in states]
        assert totals[0] == totals[1]
        assert (await merged.audit()).is_clean

    asyncio.run(compare())


def _essence(answer: Any) -> object:  # noqa: ANN401  # any answer or failure
    """Leave out which segment served, sequence numbers, and a refusal's numbers at its own: a batch is one change."""
    match answer:
        case Reserved():
            return "reserved", answer.order_id, answer.quantity, answer.replay
        case Settled() | Decided():
            return "settled", answer.order_id, answer.state, answer.quantity, answer.replay
        case SoldOut():
            return "sold out", answer.order_id, answer.quantity
        case _:
            return answer


def test_an_order_with_a_customer_keeps_it_in_a_batch() -> None:
    async def scenario() -> None:
        pool = AsyncPool(AsyncMemoryStore(), "limited")
        await pool.open(stock=10, segments=2, limit_per_customer=1)
        answers = await asyncio.gather(pool.reserve(Order("a", 1, "ann")), pool.reserve(Order("b", 1, "ann")))
        assert [type(answer).__name__ for answer in answers] == ["Reserved", "LimitReached"]

    asyncio.run(scenario())
