"""`async with` in both its forms."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from segmented.models import Order
from segmented.plans.drivers import AsyncStore
from segmented.stock import AsyncPool
from segmented.stores.memory import AsyncMemoryStore

_numbers = count()


def new_name() -> str:
    return f"async-form-{next(_numbers)}"


def run(test: Callable[[AsyncStore], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(AsyncMemoryStore()))


def test_a_grant_is_confirmed_at_the_end_of_the_body_and_cancelled_if_it_raises() -> None:
    async def test(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=2)
        async with pool.grant("a", quantity=3, timeout=30) as grant:
            assert grant.is_trusted
        with pytest.raises(ZeroDivisionError):
            async with pool.grant(Order("b", 2)):
                _ = 1 // 0
        state = await pool.state()
        assert (state.available, state.reserved, state.confirmed) == (5, 0, 3)

    run(test)
