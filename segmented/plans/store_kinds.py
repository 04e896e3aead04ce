"""Checks whether a store is for threads or for asyncio, with one error sentence for a wrong one.

Decorators take the store itself, or a callable that returns it when a call needs it. A decorator runs at import, when
the program may not have connected yet; a callable delays that. `LoopStore` is for threads beside an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeGuard, TypeVar, cast

from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.plans.tasks import begun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
GivenT = TypeVar("GivenT")


class NotPickled:
    """A store or an order database: it has connections and threads. Whatever uses one cannot be pickled, either."""

    def __reduce__(self) -> NoReturn:
        """Raise InvalidInput."""
        who = type(self).__name__
        message = f"{who} cannot be pickled, nor a lock or pool of it: create both in the process that needs them"
        raise InvalidInput(message)


def is_async_store(store: object) -> TypeGuard[AsyncStore]:
    """Return whether it is a store for asyncio."""
    return inspect.iscoroutinefunction(_execute_of(store)) and not is_client(store)


def is_sync_store(store: object) -> TypeGuard[Store]:
    """Return whether it is a store for threads."""
    execute = _execute_of(store)
    return callable(execute) and not inspect.iscoroutinefunction(execute) and not is_client(store)


def _execute_of(store: object) -> object:
    """Return the class's own method: one patched onto the object, as tests do, may wrap a sync or an async one."""
    return getattr(type(store), "execute", None) or getattr(store, "execute", None)


def is_client(given: object) -> bool:
    """Return whether it is a client, or a pipeline, of a Redis library, from which a store can be created."""
    return any(
        kind.__module__.partition(".")[0] in {"redis", "valkey", "fakeredis", "glide"} for kind in type(given).__mro__
    )


def checked_sync(store: GivenT, who: str) -> GivenT:
    """Return a store for threads unchanged. Raises InvalidInput for anything else that `who` got."""
    if not is_sync_store(cast("object", store)):
        raise wrong_store(store, who, is_async=False)
    return store


def checked_async(store: GivenT, who: str) -> GivenT:
    """Return a store for asyncio unchanged. Raises InvalidInput for anything else that `who` got."""
    if not is_async_store(cast("object", store)):
        raise wrong_store(store, who, is_async=True)
    return store


def checked_gate(gate: GivenT, who: str, *, is_async: bool) -> GivenT:
    """Return a pool's gate unchanged. Raises InvalidInput for anything else that `who` got."""
    ask = getattr(type(gate), "grant_order", None)
    if ask is None or inspect.iscoroutinefunction(ask) is not is_async:
        wanted = "AsyncGate" if is_async else "Gate"
        raise InvalidInput(f"{who} needs a gate such as segmented.orders.{wanted}(url), and got {type(gate).__name__}")
    return gate


def wrong_store(store: object, who: str, *, is_async: bool) -> InvalidInput:
    """Return an error that says what `who` needs instead of `store`."""
    wanted, use = ("AsyncRedisStore", "asyncio") if is_async else ("RedisStore", "threads")
    if is_client(store):
        return InvalidInput(f"{who} needs a store, and got the client {type(store).__name__}: give {wanted}(client)")
    if isinstance(store, str):  # not shown: an address may hold a password
        return InvalidInput(f"{who} needs a store, and got a text: give {wanted}(url)")
    if inspect.iscoroutine(store):
        store.close()
        return InvalidInput(f"{who} needs a store, and got a coroutine: await AsyncRedisStore.from_url(...) first")
    message = f"{who} needs a store for {use}, such as {wanted}, and got {type(store).__name__}"
    if is_async_store(store) or is_sync_store(store):
        name = who.rpartition(" ")[2].removeprefix("Async")
        message += f", which {name if is_async else f'Async{name}'} takes" if name[:1].isupper() else ""
    return InvalidInput(message)


def check_given(store: object, who: str, *, is_async: bool) -> None:
    """Raise InvalidInput early for anything but a store of the right kind or a callable."""
    if is_async_store(store) or is_sync_store(store) or is_client(store):
        _check_kind(store, who, is_async=is_async)
    elif not callable(store):
        raise InvalidInput(f"{who} needs a store, or a callable that gives one, and got {store!r}")


def sync_store(given: Store | Callable[[], Store], who: str) -> Store:
    """Return the given store for threads, or the one that the given callable returns now."""
    found = given if is_sync_store(given) else _asked(given)
    _check_kind(found, who, is_async=False)
    return found  # type: ignore[return-value]  # just checked


def async_store(given: AsyncStore | Callable[[], AsyncStore], who: str) -> AsyncStore:
    """Return the given store for asyncio, or the one that the given callable returns now."""
    found = given if is_async_store(given) else _asked(given)
    _check_kind(found, who, is_async=True)
    return found  # type: ignore[return-value]  # just checked


def _asked(given: object) -> object:
    return given() if callable(given) else given


def _check_kind(store: object, who: str, *, is_async: bool) -> None:
    if not (is_async_store(store) if is_async else is_sync_store(store)):
        raise wrong_store(store, who, is_async=is_async)


WAIT_SECONDS_MAX: Final = 60.0
"""Maximum wait of a thread for its event loop; the store's own time-outs are shorter."""
LOOK_SECONDS: Final = 0.1
"""Interval in which a thread that waits looks whether its event loop has ended."""
STOPPED_SECONDS: Final = 1.0
"""Seconds after which a loop that was stopped, and may be run again, counts as ended."""
ENDED: Final = "the event loop of the store ended before the answer"


class LoopStore:
    """Runs operations of a thread on the event loop that an async store serves. It cannot wait for wake-ups."""

    def __init__(self, store: AsyncStore, loop: asyncio.AbstractEventLoop) -> None:
        """Use `store` on `loop`, which must be running while a thread asks."""
        self._store = store
        self._loop = loop
        self.clock = store.clock

    @property
    def wakeups(self) -> NoReturn:
        """Raise TypeError: plans that wait run on the event loop itself."""
        raise TypeError("a thread beside an event loop cannot wait for wake-ups: run this plan on the loop")

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run one operation atomically. Raises StoreUnavailable if the loop ends first."""
        return self._asked(partial(self._store.execute, operation, deadline=deadline))

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Run independent operations and return one answer or failure for each, in their order."""
        return self._asked(partial(self._store.execute_many, operations, deadline=deadline))

    def close(self) -> None:
        """Do nothing: the async store belongs to the loop."""

    def _asked(self, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        asking = begun(ask)
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError as error:  # the loop is closed
            asking.close()
            raise StoreUnavailable(ENDED) from error
        if not self._answered(future):
            future.cancel()
            raise StoreUnavailable(ENDED)
        try:
            return future.result()
        except CancelledError as error:
            raise StoreUnavailable(ENDED) from error

    def _answered(self, future: Future[AnswerT]) -> bool:
        """Wait for the answer; return whether it came before the loop ended. A closed loop drops what it was given."""
        began = ran = time.monotonic()
        while not wait([future], LOOK_SECONDS).done:
            now = time.monotonic()
            ran = now if self._loop.is_running() else ran
            if self._loop.is_closed() or now - ran > STOPPED_SECONDS or now - began > WAIT_SECONDS_MAX:
                return future.done()
        return True
