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

There are two plans: the first reads the value or gets the turn to load it; the second keeps what was loaded. Between
them the sync and async classes run the loader, which is the caller's code. Then they release the lock, whose message
wakes one waiter per process: it checks again and finds the value, and then the next in line checks.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from math import inf
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload
from uuid import uuid4

from segmented.clock import Duration, in_seconds
from segmented.errors import (
    AcquireTimeout,
    InvalidInput,
    LeaseLost,
    LoaderFailed,
    SegmentedError,
    StoreError,
    StoreRefused,
)
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, checked_function, name_of, shape_of
from segmented.locks.durations import (
    DEFAULT_TIMEOUT,
    checked_name,
    checked_timeout,
    is_whole,
    milliseconds,
    milliseconds_or_none,
)
from segmented.locks.handle import DEFAULT_RENEW_MAX
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import Renewal, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Cached, Held, MayLoad, Outpaced, Uncached
from segmented.plans import Now, Plan, perform, run_async, run_sync, wait_for
from segmented.plans.store_kinds import async_store, check_given, is_async_store, is_sync_store, sync_store
from segmented.protocol import ForgetCached, ReadCached, ReadOrAcquire, WriteCached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from segmented.plans.drivers import AsyncStore, Store


NOTHING: Final = Cached("none", "")
_log = logging.getLogger("segmented.locks")
DEFAULT_TTL: Final = 10.0
DEFAULT_KEEP_FAILURES: Final = 1.0
DEFAULT_SIZE_MAX: Final = 1024 * 1024
HOLD_OFF_MS_MIN: Final = 1_000
DETAIL_LENGTH_MAX: Final = 500
LOOKS_MAX: Final = 5
"""Looks at a value that cannot be read, which other callers keep again and again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A kept value, as `load` restored it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """The caller's turn to load the value; `old` is the value kept until then."""

    claim: LockClaim
    acquired: Acquired
    asked_at: float
    old: Cached | None


def look_plan(name: str, holder_id: str, options: FlightOptions) -> Plan[Opened | Turn]:
    """Return the kept value, or the caller's turn; wait while another caller loads a missing value.

    A value that `load` cannot read, for example one of an older release, is dropped as if it were missing. Raises
    LoaderFailed for a kept failure, AcquireTimeout if others load for longer than `timeout`, and LeaseLost if the
    answer arrives after the lease has expired; nothing is left behind.
    """
    for attempt in range(1, LOOKS_MAX + 1):
        found = yield from _one_look(name, holder_id, options)
        if isinstance(found, Turn):
            return found
        try:
            return Opened(options.opened(name, found))
        except LoaderFailed:
            raise
        except Exception as error:
            _log.warning("flight.unreadable", extra={"flight": name, "reason": described(error)})
            if attempt == LOOKS_MAX:  # others keep on writing such values
                raise
            yield from perform(ForgetCached(name, only=found))
    raise AssertionError  # the loop returns or raises


def _one_look(name: str, holder_id: str, options: FlightOptions) -> Plan[Cached | Turn]:
    claim = LockClaim(name, holder_id, options.lease_ttl_ms)
    try:
        answer, asked_at = yield from wait_for(
            ReadOrAcquire(name, holder_id, options.lease_ttl_ms, options.hold_off_ms),
            channel=claim.channel,
            timeout=checked_timeout(options.timeout),
            is_busy=lambda answer: isinstance(answer, Held),
            undo=claim.releasing,
        )
    except StoreRefused:  # perhaps the server's memory is full: reading needs none
        kept = yield from perform(ReadCached(name))
        if isinstance(kept, Cached):
            return kept
        raise
    if isinstance(answer, Cached):
        return answer
    if not isinstance(answer, MayLoad):
        raise AcquireTimeout(name, inf if options.timeout is None else in_seconds(options.timeout))
    if (yield from perform(Now())) >= trusted_until(asked_at, options.lease_ttl_ms):
        with suppress(StoreError):  # the lease expires on its own
            yield from perform(claim.releasing())
        raise LeaseLost(name, holder_id)
    old = answer.old
    return Turn(claim, answer.acquired, asked_at, old if old is not None and options.can_open(name, old) else None)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loader returned a value."""

    value: object


@dataclass(frozen=True, slots=True)
class Failed:
    """The loader raised, or its value could not be kept. The loader's own caller gets the error."""

    error: Exception


def landing_plan(turn: Turn, outcome: Loaded | Failed, options: FlightOptions) -> Plan[Cached | Failed]:
    """Keep what the loader returned, and return what its caller gets.

    1. a value is kept, and returned in the form that the others will get; so is None, if it is to be kept;
    2. a failed refresh leaves the old value in place;
    3. any other failure is kept for the others.
    """
    name = turn.claim.name
    if isinstance(outcome, Loaded):
        try:
            entry = options.entry(name, outcome.value)
        except Exception as error:  # noqa: BLE001  # any error of the caller's `dump` counts as a failure of its loader
            outcome = Failed(error)
        else:
            if entry is None:
                return NOTHING
            yield from _keep_plan(turn, entry)
            return entry.value
    if turn.old is not None:
        _log.warning("flight.refresh_failed", extra={"flight": name, "reason": described(outcome.error)})
        return turn.old
    failure = options.failure(outcome.error)
    if failure is not None:
        yield from _keep_plan(turn, failure)
    return outcome


def _keep_plan(turn: Turn, entry: Entry) -> Plan[None]:
    """Write the entry; if the store does not answer, only log it, since the value is still good."""
    claim, lives = turn.claim, (entry.ttl_ms, entry.refresh_in_ms)
    write = WriteCached(claim.name, claim.holder_id, turn.acquired.fencing_token, entry.value, *lives)
    try:
        answer = yield from perform(write)
    except StoreError as error:
        _log.warning("flight.not_kept", extra={"flight": claim.name, "reason": str(error)})
    else:
        if isinstance(answer, Outpaced):
            _log.info("flight.outpaced", extra={"flight": claim.name})


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to keep, and for how long."""

    value: Cached
    ttl_ms: int
    refresh_in_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightOptions:
    """The results that a single flight keeps, and for how many seconds; checked on creation. See `single_flight`."""

    keep: Duration
    keep_none: Duration | None = None
    keep_failures: Duration = DEFAULT_KEEP_FAILURES
    refresh_ahead: Duration | None = None
    ttl: Duration = DEFAULT_TTL
    timeout: Duration | None = DEFAULT_TIMEOUT
    dump: Callable[[Any], str | bytes] = json.dumps
    load: Callable[[Any], Any] = json.loads
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        milliseconds(self.keep, "keep")
        milliseconds(self.ttl, "ttl")
        milliseconds_or_none(self.keep_failures, "keep_failures")
        if self.keep_none is not None:
            milliseconds_or_none(self.keep_none, "keep_none")
        checked_timeout(self.timeout)
        ahead_ms = 0 if self.refresh_ahead is None else milliseconds(self.refresh_ahead, "refresh_ahead")
        if ahead_ms >= milliseconds(self.keep, "keep"):
            raise InvalidInput(
                f"refresh_ahead of {ahead_ms / 1000:g} s must be less than the keep of {in_seconds(self.keep):g} s"
            )
        if not is_whole(self.size_max) or self.size_max < 1:
            raise InvalidInput(f"size_max of {self.size_max!r} is not a number of bytes: give 1 or more")
        serializer: tuple[object, object] = (self.dump, self.load)
        if not all(callable(one) for one in serializer):
            message = "dump and load are callables: one makes str or bytes of a value, the other the value again"
            raise InvalidInput(message)

    @property
    def lease_ttl_ms(self) -> int:
        """Return how long a loader that has died keeps the others waiting."""
        return milliseconds(self.ttl, "ttl")

    @property
    def hold_off_ms(self) -> int:
        """Return how long a failed refresh delays the next one."""
        return max(HOLD_OFF_MS_MIN, milliseconds_or_none(self.keep_failures, "keep_failures"))

    def entry(self, name: str, value: object) -> Entry | None:
        """Return the entry to keep for a value, or None. Raises InvalidInput if it is too large, or as `dump` does."""
        if value is None:
            ttl_ms = milliseconds_or_none(self.keep if self.keep_none is None else self.keep_none, "keep_none")
            return Entry(Cached("none", ""), ttl_ms) if ttl_ms else None
        dumped = self.dump(value)
        size = len(dumped.encode() if isinstance(dumped, str) else dumped)
        if size > self.size_max:
            raise InvalidInput(f"the value of {name!r} has {size} bytes; the maximum is {self.size_max}")
        kept = Cached("text", dumped) if isinstance(dumped, str) else Cached("bytes", base64.b64encode(dumped).decode())
        ttl_ms = milliseconds(self.keep, "keep")
        ahead_ms = None if self.refresh_ahead is None else milliseconds(self.refresh_ahead, "refresh_ahead")
        return Entry(kept, ttl_ms, None if ahead_ms is None else ttl_ms - ahead_ms)

    def failure(self, error: Exception) -> Entry | None:
        """Return the entry to keep for a loader's error, its type and the start of its message, or None."""
        ttl_ms = milliseconds_or_none(self.keep_failures, "keep_failures")
        detail = _text_of(error)[:DETAIL_LENGTH_MAX]
        body = json.dumps({"kind": type(error).__qualname__, "detail": detail})
        return Entry(Cached("error", body), ttl_ms) if ttl_ms else None

    def opened(self, name: str, kept: Cached) -> Any:  # noqa: ANN401  # the kept value
        """Return the kept value. Raises LoaderFailed for a kept error."""
        match kept.kind:
            case "none":
                return None
            case "text":
                return self.load(kept.body)
            case "bytes":
                return self.load(base64.b64decode(kept.body))
        raise LoaderFailed(name, **json.loads(kept.body))

    def can_open(self, name: str, kept: Cached) -> bool:
        """Return whether `load` can read a kept value."""
        try:
            self.opened(name, kept)
        except Exception:  # noqa: BLE001  # any error of the caller's `load`
            return False
        return True


def described(error: Exception) -> str:
    """Return an error's type and message."""
    return f"{type(error).__qualname__}: {_text_of(error)}"


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  # an error of the caller's own, whose text fails in any way
        return f"its text cannot be read ({type(failure).__qualname__})"


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
