"""The end of a grant is owed to the store: an exception at any call leaves the order ended as its body was.

Every end of a grant meets an exception at every call of the store, before the store has performed it and after.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from segmented import AsyncMemoryStore, AsyncPool, MemoryStore, Pool, protocol as op
from segmented.errors import StoreUnavailable
from segmented.protocol.base import Release
from segmented.stock import AsyncCarts, AsyncShardedPool, Cart

CALLS_MAX: Final = 10


class Failed(Exception):
    """The body's own error."""


class Cut:
    """A store that raises an error at one of its calls, before or after it has performed the call; 0: at none."""

    def __init__(self, store: Any, error: type[BaseException], *, is_performed: bool) -> None:  # noqa: ANN401  # sync or async
        self._store, self._error, self._is_performed = store, error, is_performed
        self.at = self.calls = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # the store's own
        return getattr(self._store, name)

    def _is_cut(self) -> bool:
        self.calls += 1
        return self.calls == self.at


class CutStore(Cut):
    def execute(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        return self._asked(self._store.execute, *args, **options)

    def execute_many(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        return self._asked(self._store.execute_many, *args, **options)

    def _asked(self, ask: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        if not self._is_cut():
            return ask(*args, **options)
        if self._is_performed:
            ask(*args, **options)
        raise self._error


class AsyncCutStore(Cut):
    async def execute(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        return await self._asked(self._store.execute, *args, **options)

    async def execute_many(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        return await self._asked(self._store.execute_many, *args, **options)

    async def _asked(self, ask: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        if not self._is_cut():
            return await ask(*args, **options)
        if self._is_performed:
            await ask(*args, **options)
        raise self._error


ENDS: Final = (
    *(op.Confirm, op.Cancel, op.Expire, op.SettleMany, op.ReleaseGrant, op.DecideCart, op.FinishCart),
    *(op.FinishRun, op.FinishRunWithEffect, op.DoubtRun, op.AbandonRun),
)
"""The operations that say how work ended that is not done again."""
SYNC: Final[dict[str, Callable[[Any], object]]] = {
    "confirm": lambda grant: grant.confirm(),
    "cancel": lambda grant: grant.cancel(),
    "block": lambda grant: grant.__exit__(None, None, None),
    "failed block": lambda grant: grant.__exit__(Failed, Failed(), None),
}
ASYNC: Final[dict[str, Callable[[Any], Awaitable[object]]]] = {
    "confirm": lambda grant: grant.confirm(),
    "cancel": lambda grant: grant.cancel(),
    "block": lambda grant: grant.__aexit__(None, None, None),
    "failed block": lambda grant: grant.__aexit__(Failed, Failed(), None),
}
STATES: Final = {"confirm": "confirmed", "cancel": "cancelled", "block": "confirmed", "failed block": "cancelled"}


@pytest.mark.parametrize("operation", ENDS)
def test_what_ends_work_goes_first_and_ends_although_its_caller_is_cancelled(operation: type[object]) -> None:
    assert issubclass(operation, Release)


@pytest.mark.parametrize("end", STATES)
@pytest.mark.parametrize("is_performed", [False, True], ids=["unsent", "unanswered"])
def test_a_signal_at_any_call_of_an_end_leaves_the_order_ended(end: str, *, is_performed: bool) -> None:
    for at in range(1, CALLS_MAX):
        store = CutStore(MemoryStore(), KeyboardInterrupt, is_performed=is_performed)
        pool = Pool(store, "poster", ttl=30, hold=60)
        pool.open(stock=5, segments=1)
        grant = pool.grant("a", timeout=0).__enter__()
        store.at, store.calls = at, 0
        with suppress(KeyboardInterrupt):
            SYNC[end](grant)
        is_over, store.at = store.calls < at, 0
        assert (at, pool.order("a").state) == (at, STATES[end])  # type: ignore[union-attr]  # it is known
        if is_over:
            return
    pytest.fail(f"an end takes {CALLS_MAX} calls")


@pytest.mark.parametrize("end", STATES)
@pytest.mark.parametrize("is_performed", [False, True], ids=["unsent", "unanswered"])
def test_a_cancellation_at_any_call_of_an_end_leaves_the_order_ended(end: str, *, is_performed: bool) -> None:
    async def scene(at: int) -> tuple[bool, str]:
        store = AsyncCutStore(AsyncMemoryStore(), asyncio.CancelledError, is_performed=is_performed)
        pool = AsyncPool(store, "poster", ttl=30, hold=60)
        await pool.open(stock=5, segments=1)
        grant = await (await pool.grant("a", timeout=0)).__aenter__()  # type: ignore[union-attr]  # it is granted
        store.at, store.calls = at, 0
        with suppress(asyncio.CancelledError):
            await ASYNC[end](grant)
        is_over, store.at = store.calls < at, 0
        return is_over, (await pool.order("a")).state  # type: ignore[union-attr]  # it is known

    for at in range(1, CALLS_MAX):
        is_over, state = asyncio.run(scene(at))
        assert (at, state) == (at, STATES[end])
        if is_over:
            return
    pytest.fail(f"an end takes {CALLS_MAX} calls")


class CancellingStore(Cut):
    """A store that cancels the caller at one of its calls, and does not answer that call if it `is_away`."""

    caller: asyncio.Task[object]
    is_closed = False
    is_gone = False
    """Whether it answers nothing from that call on."""

    def __init__(self, *, is_away: bool) -> None:
        super().__init__(AsyncMemoryStore(), StoreUnavailable, is_performed=False)
        self._is_away = is_away

    async def execute(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        await self._meet()
        return await self._store.execute(*args, **options)

    async def execute_many(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  # as the store's
        await self._meet()
        return await self._store.execute_many(*args, **options)

    async def _meet(self) -> None:
        is_cut = self._is_cut()
        if is_cut:
            self.caller.cancel()
        await asyncio.sleep(0)
        if self._is_away and (is_cut or (self.is_gone and self.calls > self.at)):
            raise self._error


async def opened(store: CancellingStore, kind: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
    """Reserve an order, or a cart; return what ends it, and what reads its record."""
    if kind == "shards":
        shards = AsyncShardedPool(store, "poster", hold=60)
        await shards.open(stock=6, segments=2, shards=2)
        await shards.reserve("a")
        return AsyncShardedPool(store, "poster", hold=60), lambda: shards.order("a")  # one that knows no directory yet
    pool = AsyncPool(store, "poster", hold=60)
    await pool.open(stock=6, segments=2)
    if kind == "pool":
        await pool.reserve("a")
        return pool, lambda: pool.order("a")
    carts, cart = AsyncCarts(store, hold=60), Cart("a", [("poster", 1)])
    await carts.reserve(cart)
    return carts, lambda: pool.order(cart.order_id)


ENDED: dict[tuple[str, str], tuple[str, Callable[[Any], Awaitable[object]]]] = {
    ("carts", "confirm"): ("confirmed", lambda carts: carts.confirm("a", home="poster")),
    ("carts", "cancel"): ("cancelled", lambda carts: carts.cancel("a", home="poster")),
}
for front in ("pool", "shards"):
    ENDED |= {
        (front, "confirm"): ("confirmed", lambda pool: pool.confirm("a")),
        (front, "cancel"): ("cancelled", lambda pool: pool.cancel("a")),
        (front, "confirm_many"): ("confirmed", lambda pool: pool.confirm_many(["a"])),
        (front, "cancel_many"): ("cancelled", lambda pool: pool.cancel_many(["a"])),
    }


async def awaited(call: Awaitable[object]) -> object:
    return await call


@pytest.mark.parametrize("end", ENDED, ids="-".join)
@pytest.mark.parametrize("is_away", [False, True], ids=["answered", "unanswered"])
def test_an_end_whose_caller_is_cancelled_at_any_call_is_still_done(
    monkeypatch: pytest.MonkeyPatch, end: tuple[str, str], *, is_away: bool
) -> None:
    monkeypatch.setattr("segmented.plans.tasks.REPEAT_SECONDS", 0.0)
    state, call = ENDED[end]

    async def scene(at: int) -> bool:
        store = CancellingStore(is_away=is_away)
        sells, order = await opened(store, end[0])
        store.caller = asyncio.create_task(awaited(call(sells)))
        store.at, store.calls = at, 0
        with suppress(asyncio.CancelledError):
            await store.caller
        is_over, store.at = store.calls < at, 0
        async with asyncio.timeout(10):
            while (await order()).state != state:
                pass
        return is_over

    for at in range(1, CALLS_MAX):
        if asyncio.run(scene(at)):
            return
    pytest.fail(f"an end takes {CALLS_MAX} calls")


@pytest.mark.parametrize("end", ENDED, ids="-".join)
def test_an_owed_end_is_given_up_when_its_store_closes(monkeypatch: pytest.MonkeyPatch, end: tuple[str, str]) -> None:
    monkeypatch.setattr("segmented.plans.tasks.REPEAT_SECONDS", 0.0)
    monkeypatch.setattr("segmented.plans.tasks.REPEATS_MAX", 10**9)

    async def scene() -> None:
        store = CancellingStore(is_away=True)
        sells, _ = await opened(store, end[0])
        store.caller = asyncio.create_task(awaited(ENDED[end][1](sells)))
        store.at, store.calls, store.is_gone = 1, 0, True
        with suppress(asyncio.CancelledError):
            await store.caller
        store.is_closed = True
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # bounded by the time-out
                await asyncio.sleep(0)

    asyncio.run(scene())
