"""An async gate whose event loop ends, or whose database hangs: no thread and no segment waits for it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import pytest
from sqlalchemy import text

from segmented import AsyncPool, AsyncRedisStore, Pool, RedisStore
from segmented.errors import DatabaseUnavailable
from segmented.models import Busy
from segmented.orders import AsyncGate, Gate, connect
from segmented.servers import ValkeyServer
from tests.support.pools.both_sides import judged

SKU: Final = "mug"
BUYERS: Final = 40
TTL: Final = 600.0
"""Seconds; whoever waited for a lease to lapse would exceed the time limit of the test."""
SECONDS: Final = 60.0


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


def opened(url: str, gate: Gate) -> None:
    with RedisStore.from_url(url) as store:
        Pool(store, SKU, gate=gate).open(stock=20, segments=1)


def test_a_loop_that_ends_by_an_exception_leaves_no_thread_and_no_lock(
    valkey: ValkeyServer, gate: Gate, order_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(valkey.url, gate)
    its = AsyncGate(connect(order_database))
    real, is_asked, goes_on, is_over = its.gate.is_decided, threading.Event(), threading.Event(), threading.Event()

    def is_decided(sku: str, order_id: str) -> bool:
        is_asked.set()
        assert goes_on.wait(4 * SECONDS)
        try:
            return real(sku, order_id)
        finally:
            is_over.set()

    async def main() -> None:
        store = await AsyncRedisStore.from_url(valkey.url)

        async def buy() -> None:
            try:
                async with AsyncPool(store, SKU, ttl=TTL, gate=its).grant("a", timeout=TTL):
                    pytest.fail("the body ran")
            finally:
                await store.close()

        buyer = asyncio.create_task(buy())
        assert await asyncio.to_thread(is_asked.wait, SECONDS)
        assert not buyer.done()
        raise ZeroDivisionError

    monkeypatch.setattr(its.gate, "is_decided", is_decided)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU, ttl=TTL, gate=gate)
        with pool.grant("b", timeout=SECONDS):  # long before the lease ends
            pass
        assert not is_over.is_set()
        goes_on.set()
        asyncio.run(its.close())  # waits for the gate's threads, and not for the end of the grant's timeout
        assert is_over.is_set()
        with pool.grant("a", timeout=SECONDS):  # a repeat has its units
            pass
    assert judged(valkey.url, order_database) == (20, 2, 18)


def test_a_grant_ends_soon_after_its_timeout_while_the_database_hangs(
    valkey: ValkeyServer, postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(postgres_database)
    opened(valkey.url, gate)
    hanging = connect(postgres_database, pool_size=1, timeout=2 * TTL)

    async def main() -> list[object]:
        async with (
            await AsyncRedisStore.from_url(valkey.url) as store,
            AsyncGate(connect(postgres_database, timeout=2 * TTL)) as its,
        ):
            pool = AsyncPool(store, SKU, ttl=TTL, gate=its)
            await pool.state()
            with hanging.connect() as connection:
                connection.execution_options(isolation_level="READ COMMITTED")
                connection.execute(text("LOCK TABLE segmented_orders IN ACCESS EXCLUSIVE MODE"))
                buyers = [pool.grant(f"o-{number}", timeout=2) for number in range(BUYERS)]
                answers = await asyncio.gather(*buyers, return_exceptions=True)
                connection.rollback()  # only now does the database answer
            kept = next((at for at, answer in enumerate(answers) if isinstance(answer, DatabaseUnavailable)), 0)
            async with pool.grant(f"o-{kept}", timeout=SECONDS):  # the segment is free, and the order has its units
                pass
            return list(answers)

    answers = asyncio.run(main())
    assert {type(answer) for answer in answers} <= {DatabaseUnavailable, Busy}
    assert judged(valkey.url, postgres_database)[:2] == (20, 1)
    hanging.dispose()
