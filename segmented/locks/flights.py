"""A single flight: a lock and a cache with a second check, so that one of many callers computes and all read.

The second check and the lock are one step: one script reads the value or takes the lock (memcached users call it
dogpile prevention; Go's `singleflight` does it inside one process).

Guarantees, as long as the server keeps its memory:

- one loader runs at a time for a name, across processes; while a value is kept, nobody takes the lock;
- a caller that waits for a loader gets its value, its None, or its failure, without running its own loader, for as long
  as those are kept (`keep`, `keep_none`, `keep_failures`);
- a loader that dies costs the others `ttl` seconds and one more call: the next caller checks first;
- a value loaded under an older token never replaces a newer one, and a value that was being loaded when the name was
  forgotten is not kept.

Not guaranteed: exactly one call. If a loader is paused for longer than its lease (a stopped process, a blocked event
loop), another caller loads; both calls end, and the newer value stays. Values are not cached in the process: each hit
is one round trip.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload
from uuid import uuid4

from segmented.clock import Duration, in_seconds
from segmented.errors import InvalidInput, LoaderFailed, SegmentedError
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, checked_function, name_of, shape_of
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name
from segmented.locks.flight_plan import (
    DEFAULT_KEEP_FAILURES,
    DEFAULT_SIZE_MAX,
    DEFAULT_TTL,
    Failed,
    FlightOptions,
    Loaded,
    Opened,
    landing_plan,
    look_plan,
)
from segmented.locks.handle import DEFAULT_RENEW_MAX
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import Renewal
from segmented.models import Cached, Uncached
from segmented.plans import perform, run_async, run_sync
from segmented.plans.store_kinds import async_store, check_given, is_async_store, is_sync_store, sync_store
from segmented.protocol import ForgetCached, ReadCached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from segmented.plans.drivers import AsyncStore, Store

P = ParamSpec("P")
V = TypeVar("V")

RENEWAL: Final = Renewal(is_wanted=True, seconds_max=DEFAULT_RENEW_MAX)
WHO: Final = "a single flight"


class AsyncSingleFlight:
    """Values by name, loaded by one caller at a time, for asyncio. `single_flight` creates it.

    If you create it yourself, as `AsyncSingleFlight(store, FlightOptions(keep=60))`, the store may be a callable that
    returns it when a call needs it.
    """

    def __init__(self, store: AsyncStore | Callable[[], AsyncStore], options: FlightOptions) -> None:
        """Create a flight that keeps values on `store`, or on the store that this callable returns."""
        check_given(store, WHO, is_async=True)
        self._given = store
        self._options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}(keep={in_seconds(self._options.keep):g})"

    async def get(self, key: str, loader: Callable[[], Awaitable[V]]) -> V:
        """Return the value kept under `key`, or call `loader` and keep its value; one caller loads, the others wait.

        All callers, also the one that loaded, get the value as `load` restores it from what `dump` made. The caller
        whose loader failed gets the loader's error; others get LoaderFailed for `keep_failures` seconds. Raises
        AcquireTimeout if others are still loading after `timeout` seconds. A caller that is cancelled while it loads
        releases the lock, and the next one loads.

        A loader that gets the same key from the same flight waits for itself.
        """
        store = async_store(self._given, WHO)
        turn = await run_async(look_plan(checked_name(key, WHO), uuid4().hex, self._options), store)
        if isinstance(turn, Opened):
            return turn.value  # type: ignore[no-any-return]  # what a loader gave
        lease = AsyncLease(store, turn.claim, RENEWAL, turn.acquired, turn.asked_at)
        outcome: Loaded | Failed
        try:
            try:
                outcome = Loaded(await loader())
            except Exception as error:  # noqa: BLE001  # it is the plan that decides about it
                outcome = Failed(error)
            found = await run_async(landing_plan(turn, outcome, self._options), store)
        finally:
            with suppress(SegmentedError):  # it was lost, or the store is away and it lapses
                await lease.release()
        return _landed(key, found, self._options)  # type: ignore[no-any-return]  # what the loader gave

    async def peek(self, key: str, *, default: V | None = None) -> Any:  # noqa: ANN401  # whatever was kept
        """Return the kept value without loading, or `default` if none is kept that `load` can read.

        Raises LoaderFailed for a kept failure.
        """
        found = await run_async(perform(ReadCached(checked_name(key, WHO))), async_store(self._given, WHO))
        return _peeked(key, found, default, self._options)

    async def forget(self, key: str) -> bool:
        """Drop the kept value and do not keep one that is being loaded now. Return whether one was kept.

        Call it after the change that made the value wrong: the value of a loader that read before the change is then
        not kept, though the loader's own caller still gets it.
        """
        operation = ForgetCached(checked_name(key, WHO))
        return (await run_async(perform(operation), async_store(self._given, WHO))).was_kept

    def __call__(
        self, expression: str | Callable[..., str]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, V]]], Callable[P, Coroutine[Any, Any, V]]]:
        """Decorate a coroutine function: keep its results under the key that `expression` makes of the arguments.

        Begin the expression with a word unique to the function: functions with the same expression share what is kept.
        Others do not: the arguments are in braces in the key, as in `user:{7}` for `"user:{id}"`.
        """

        def decorate(function: Callable[P, Coroutine[Any, Any, V]]) -> Callable[P, Coroutine[Any, Any, V]]:
            key = _checked_key(expression, function, is_async=True)

            @wraps(function)
            async def flown(*arguments: P.args, **options: P.kwargs) -> V:
                return await self.get(key.of(arguments, options), partial(function, *arguments, **options))

            setattr(flown, KEY_ATTRIBUTE, key)
            return flown

        return decorate


@overload
def single_flight(
    store: Store,
    *,
    keep: Duration,
    keep_none: Duration | None = ...,
    keep_failures: Duration = ...,
    refresh_ahead: Duration | None = ...,
    ttl: Duration = ...,
    timeout: Duration | None = ...,
    dump: Callable[[Any], str | bytes] = ...,
    load: Callable[[Any], Any] = ...,
    size_max: int = ...,
) -> SingleFlight: ...
@overload
def single_flight(
    store: AsyncStore,
    *,
    keep: Duration,
    keep_none: Duration | None = ...,
    keep_failures: Duration = ...,
    refresh_ahead: Duration | None = ...,
    ttl: Duration = ...,
    timeout: Duration | None = ...,
    dump: Callable[[Any], str | bytes] = ...,
    load: Callable[[Any], Any] = ...,
    size_max: int = ...,
) -> AsyncSingleFlight: ...
def single_flight(  # noqa: PLR0913  # each is an option of its own, by name
    store: Store | AsyncStore,
    *,
    keep: Duration,
    keep_none: Duration | None = None,
    keep_failures: Duration = DEFAULT_KEEP_FAILURES,
    refresh_ahead: Duration | None = None,
    ttl: Duration = DEFAULT_TTL,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    dump: Callable[[Any], str | bytes] = json.dumps,
    load: Callable[[Any], Any] = json.loads,
    size_max: int = DEFAULT_SIZE_MAX,
) -> SingleFlight | AsyncSingleFlight:
    """Return a flight on a store: sync on a sync store, async on an async one.

    Durations are in seconds or timedeltas. A value is kept for `keep`; None is kept for `keep_none` (default: `keep`);
    a loader's failure, by type and message, for `keep_failures`. 0 keeps none of that kind; then callers load one after
    another.

    With `refresh_ahead`, one caller reloads a value that has less than that many seconds to live, in its own call;
    meanwhile the others get the old value. A failed refresh leaves the old value in place and is tried again after
    `keep_failures` (at least 1 s).

    A loader's lock lives for `ttl` and is renewed while the loader runs, up to an hour: so a process that dies keeps
    the others waiting for `ttl`. A caller waits up to `timeout` while others load (None: forever).

    `dump` turns a value into str or bytes, up to `size_max` bytes, and `load` restores it; the default is JSON. A value
    that cannot be dumped or is too large counts as a failure of its loader.
    """
    options = FlightOptions(
        keep=keep,
        keep_none=keep_none,
        keep_failures=keep_failures,
        refresh_ahead=refresh_ahead,
        ttl=ttl,
        timeout=timeout,
        dump=dump,
        load=load,
        size_max=size_max,
    )
    if is_async_store(store):
        return AsyncSingleFlight(store, options)
    if is_sync_store(store):
        return SingleFlight(store, options)
    raise InvalidInput(
        f"{WHO} needs a store, and got {store!r}; SingleFlight and AsyncSingleFlight take a callable that gives one"
    )


def _checked_key(expression: str | Callable[..., str], function: Callable[..., Any], *, is_async: bool) -> CallKey:
    checked_function(function, "@flight(...)")
    kind = shape_of(function)
    wanted = "coroutine function" if is_async else "function"
    if kind != wanted:
        article = "an" if kind[0] == "a" else "a"
        raise InvalidInput(f"{WHO} keeps what a {wanted} returns, and {name_of(function)} is {article} {kind}")
    return CallKey(expression, function, marked=True)


def _landed(key: str, found: Cached | Failed, options: FlightOptions) -> Any:  # noqa: ANN401  # what a loader gave
    """Return the value. Raises the error of a loader that failed just now, and LoaderFailed for an earlier failure."""
    if isinstance(found, Failed):
        raise found.error
    return options.opened(key, found)


def _peeked(key: str, found: Cached | Uncached, default: object, options: FlightOptions) -> Any:  # noqa: ANN401  # what a loader gave
    if isinstance(found, Uncached):
        return default
    try:
        return options.opened(key, found)
    except LoaderFailed:
        raise
    except Exception:  # noqa: BLE001  # any error of the caller's `load`
        return default


# --- For threads: written by `make sync` from the classes above. ---


class SingleFlight:
    """Values by name, loaded by one caller at a time, for threads. `single_flight` creates it.

    If you create it yourself, as `SingleFlight(store, FlightOptions(keep=60))`, the store may be a callable that
    returns it when a call needs it.
    """

    def __init__(self, store: Store | Callable[[], Store], options: FlightOptions) -> None:
        """Create a flight that keeps values on `store`, or on the store that this callable returns."""
        check_given(store, WHO, is_async=False)
        self._given = store
        self._options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}(keep={in_seconds(self._options.keep):g})"

    def get(self, key: str, loader: Callable[[], V]) -> V:
        """Return the value kept under `key`, or call `loader` and keep its value; one caller loads, the others wait.

        All callers, also the one that loaded, get the value as `load` restores it from what `dump` made. The caller
        whose loader failed gets the loader's error; others get LoaderFailed for `keep_failures` seconds. Raises
        AcquireTimeout if others are still loading after `timeout` seconds. A caller that is cancelled while it loads
        releases the lock, and the next one loads.

        A loader that gets the same key from the same flight waits for itself.
        """
        store = sync_store(self._given, WHO)
        turn = run_sync(look_plan(checked_name(key, WHO), uuid4().hex, self._options), store)
        if isinstance(turn, Opened):
            return turn.value  # type: ignore[no-any-return]  # what a loader gave
        lease = Lease(store, turn.claim, RENEWAL, turn.acquired, turn.asked_at)
        outcome: Loaded | Failed
        try:
            try:
                outcome = Loaded(loader())
            except Exception as error:  # noqa: BLE001  # it is the plan that decides about it
                outcome = Failed(error)
            found = run_sync(landing_plan(turn, outcome, self._options), store)
        finally:
            with suppress(SegmentedError):  # it was lost, or the store is away and it lapses
                lease.release()
        return _landed(key, found, self._options)  # type: ignore[no-any-return]  # what the loader gave

    def peek(self, key: str, *, default: V | None = None) -> Any:  # noqa: ANN401  # whatever was kept
        """Return the kept value without loading, or `default` if none is kept that `load` can read.

        Raises LoaderFailed for a kept failure.
        """
        found = run_sync(perform(ReadCached(checked_name(key, WHO))), sync_store(self._given, WHO))
        return _peeked(key, found, default, self._options)

    def forget(self, key: str) -> bool:
        """Drop the kept value and do not keep one that is being loaded now. Return whether one was kept.

        Call it after the change that made the value wrong: the value of a loader that read before the change is then
        not kept, though the loader's own caller still gets it.
        """
        operation = ForgetCached(checked_name(key, WHO))
        return run_sync(perform(operation), sync_store(self._given, WHO)).was_kept

    def __call__(self, expression: str | Callable[..., str]) -> Callable[[Callable[P, V]], Callable[P, V]]:
        """Decorate a function: keep its results under the key that `expression` makes of the arguments.

        Begin the expression with a word unique to the function: functions with the same expression share what is kept.
        Others do not: the arguments are in braces in the key, as in `user:{7}` for `"user:{id}"`.
        """

        def decorate(function: Callable[P, V]) -> Callable[P, V]:
            key = _checked_key(expression, function, is_async=False)

            @wraps(function)
            def flown(*arguments: P.args, **options: P.kwargs) -> V:
                return self.get(key.of(arguments, options), partial(function, *arguments, **options))

            setattr(flown, KEY_ATTRIBUTE, key)
            return flown

        return decorate
