"""An async pool with a gate: every call asks or tells its order database, and both sides agree."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from segmented import AsyncPool, AsyncRedisStore, Pool, RedisStore
from segmented.errors import GrantSuperseded, InvalidInput, NotGranted
from segmented.models import Decided, Opened
from segmented.orders import AsyncGate, audit_both, connect
from segmented.stock import AsyncGrant

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

    Body: TypeAlias = "Callable[[Shop], Coroutine[None, None, None]]"
    Sell: TypeAlias = "Callable[[Body], None]"

SKU: Final = "mug"
BUYERS: Final = 60
TTL: Final = 600.0
"""Seconds; whoever waited for a lease to lapse would exceed the time limit of the test."""
SECONDS: Final = 60.0


class Shop:
    """An async pool with its gate, opened with 20 units in two segments."""

    def __init__(self, store: AsyncRedisStore, gate: AsyncGate) -> None:
        self.gate = gate
        self.store = store
        self.pool = AsyncPool(store, SKU, ttl=TTL, gate=gate)


@pytest.fixture
def order_database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def sell(valkey: ValkeyServer, gate: Gate, order_database: str) -> Sell:
    """Run a coroutine with a shop, then compare both sides by a judge of its own: the sync pool and gate."""

    def run(body: Body) -> None:
        async def main() -> None:
            async with await AsyncRedisStore.from_url(valkey.url) as store, AsyncGate(connect(order_database)) as its:
                shop = Shop(store, its)
                assert isinstance(await shop.pool.open(stock=20, segments=2), Opened)
                await body(shop)

        asyncio.run(main())
        with RedisStore.from_url(valkey.url) as store:
            pool = Pool(store, SKU)
            report = pool.audit()
            assert report.is_clean, report.drift
            both = audit_both(pool, gate)
            assert both.is_clean, both.differences
            assert gate.confirmed_units(SKU) == gate.totals(SKU).sold == pool.state().confirmed

    return run


def test_an_overtaken_grant_stores_nothing_and_its_order_is_granted_again(sell: Sell, gate: Gate) -> None:
    async def body(shop: Shop) -> None:
        brief = AsyncPool(shop.store, SKU, ttl=0.001, gate=shop.gate)
        first = await brief.grant("a")
        assert isinstance(first, AsyncGrant)
        gate.confirm(
            order_id="b", sku=SKU, segment=first.segment, quantity=1, epoch=1, fence=first.fencing_token + 10**9
        )
        with pytest.raises(GrantSuperseded):
            await first.confirm()
        async with brief.grant("a") as again:
            assert again.fencing_token > first.fencing_token + 10**9
        assert isinstance(await shop.pool.grant("b"), Decided)

    sell(body)


def test_many_buyers_at_once_sell_exactly_the_stock(sell: Sell, gate: Gate) -> None:
    async def body(shop: Shop) -> None:
        async def buy(number: int) -> bool:
            try:
                async with shop.pool.grant(f"o-{number}", timeout=2 * SECONDS):
                    await asyncio.sleep(0)
            except NotGranted:
                return False
            return True

        bought = await asyncio.gather(*(buy(number) for number in range(BUYERS)))
        assert (sum(bought), gate.confirmed_units(SKU)) == (20, 20)

    sell(body)


def test_cancelled_buyers_leave_no_segment_locked_and_can_buy_again(sell: Sell) -> None:
    async def body(shop: Shop) -> None:
        async def buy(number: int) -> None:
            async with shop.pool.grant(f"o-{number}", timeout=2 * SECONDS):
                await asyncio.sleep(0)

        buyers = [asyncio.create_task(buy(number)) for number in range(BUYERS)]
        for number, buyer in enumerate(buyers):
            if number % 3 == 0:
                await asyncio.sleep(0.001)
            buyer.cancel()
        await asyncio.gather(*buyers, return_exceptions=True)
        for number in range(BUYERS):  # each again, long before a lease ends
            with suppress(NotGranted):
                async with shop.pool.grant(f"o-{number}", timeout=SECONDS):
                    pass
        state = await shop.pool.state()
        assert (state.reserved, state.confirmed + state.available) == (0, 20)

    sell(body)


def test_a_buyer_cancelled_while_the_database_is_asked_leaves_no_segment_locked(
    sell: Sell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(shop: Shop) -> None:
        real, is_asked, goes_on = shop.gate.gate.is_decided, threading.Event(), threading.Event()

        def is_decided(sku: str, order_id: str) -> bool:
            is_asked.set()
            assert goes_on.wait(SECONDS)
            return real(sku, order_id)

        with monkeypatch.context() as patched:
            patched.setattr(shop.gate.gate, "is_decided", is_decided)
            buyer = asyncio.create_task(shop.pool.grant("a", timeout=SECONDS).__aenter__())
            assert await asyncio.to_thread(is_asked.wait, SECONDS)
            buyer.cancel()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await buyer
        async with shop.pool.grant("a", timeout=SECONDS):  # long before the lease ends
            pass

    sell(body)


def test_a_closed_gate_ends_after_its_steps_and_says_so(sell: Sell, order_database: str) -> None:
    async def body(shop: Shop) -> None:
        gate = AsyncGate(connect(order_database))
        pool = AsyncPool(shop.store, SKU, gate=gate)
        await pool.reserve("a")
        confirming = asyncio.create_task(pool.confirm("a"))
        await asyncio.sleep(0)
        await gate.close()
        await gate.close()
        assert (await confirming).state == "confirmed"
        with pytest.raises(InvalidInput, match="is closed"):
            await pool.confirm("b")

    sell(body)
