"""`locked`: a decorator that runs a function under the lock that a key expression names.

Guarantees: the body runs only while the lock is held, from its first step to its last, in functions, coroutine
functions, generators and async generators alike; it runs unlocked only with `on_busy="run"`. The key is evaluated once
per call, before anything else.

Not guaranteed: more than a lease can. A body that takes longer than `ttl` seconds without `renew` loses its lock
before it ends, and then the call raises LeaseLost although the body ran; a resource that refuses old fencing tokens
(`lease_as`) is protected even then. The lock is not reentrant: a function that calls itself under the same key waits
for itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from segmented.clock import Duration, in_seconds
from segmented.errors import AcquireTimeout, InvalidInput, SegmentedError
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, Path, checked_function, name_of, shape_of
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout, is_whole, milliseconds
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lock import AsyncLock, Lock
from segmented.plans import pause, run_async, run_sync
from segmented.plans.store_kinds import async_store, check_given, sync_store
from segmented.plans.tasks import begun

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.locks.sql_transactions import Follower, Transaction
    from segmented.plans.drivers import AsyncStore, Store

    GivenStore = Store | AsyncStore | Callable[[], Store] | Callable[[], AsyncStore]

LeaseT = TypeVar("LeaseT", Lease, AsyncLease)
_log = logging.getLogger("segmented.locks")
_releasing: set[asyncio.Task[None]] = set()
"""Keeps the tasks of releases in progress from being garbage-collected."""


class _Ends(Generic[LeaseT]):
    """Tracks the ends of the body and of the transaction, if there is one."""

    def __init__(self, lease: LeaseT, transaction: Transaction | None) -> None:
        """Create an object that releases `lease` once the body and `transaction`, if there is one, have ended."""
        self._lease: LeaseT = lease
        self._transaction = transaction
        self._guard = threading.RLock()
        self._is_body_over = False
        self._has_ended = False

    def _follow(self) -> None:
        """Follow the transaction from before the body's first step."""
        if self._transaction is not None:
            self._transaction.follow(self)

    def before_commit(self) -> None:
        """Raise LeaseLost if the lease no longer covers the commit."""
        if not self._has_ended:
            self._lease.require()

    def after_end(self) -> None:
        """Note that the transaction has ended; release the lease if the body has ended too."""
        if self._is_body_over and self._is_last():
            self._release_late()

    def _release_late(self) -> None:
        raise NotImplementedError

    def _is_body_last(self) -> bool:
        """Note the end of the body and return whether the body must release."""
        self._is_body_over = True
        if self._transaction is not None and self._transaction.is_open():
            return False
        return self._is_last()

    def _is_last(self) -> bool:
        """Return whether this end must release: if both ends come at once in two threads, only one does."""
        with self._guard:
            if self._has_ended:
                return False
            self._has_ended = True
        if self._transaction is not None:
            self._transaction.leave(self)
        return True

    def _note_failure(self, failure: SegmentedError) -> None:
        """Log the failure: the transaction is decided, so nothing may be raised into its commit."""
        _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": str(failure)})


class HookWatch:
    """Follows a transaction of any other kind, through a hook that gets a function to call at the end."""

    def __init__(self, register: Callable[[Callable[[], None]], object]) -> None:
        """Create a watch that passes its function to `register` once there is a follower."""
        self._register = register
        self._follower: Follower | None = None
        self._is_over = False

    def is_open(self) -> bool:
        """Return whether the hook has not yet reported the end."""
        return not self._is_over

    def follow(self, follower: Follower) -> None:
        """Register the only follower of this hook."""
        self._follower = follower
        self._register(self._end)

    def leave(self, _: Follower) -> None:
        """Stop notifying the follower."""
        self._follower = None

    def has_run(self, _: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Return False: a hook may be called anywhere, where a coroutine cannot run."""
        return False

    def _end(self) -> None:
        self._is_over = True
        if self._follower is not None:
            self._follower.after_end()


class AsyncHolding(_Ends[AsyncLease]):
    """A lease around a body, for asyncio."""

    def __init__(self, lease: AsyncLease, transaction: Transaction | None) -> None:  # asyncio only
        """Create an object that releases `lease` once the body and `transaction`, if there is one, have ended.

        It belongs to the running event loop.
        """
        self._loop = asyncio.get_running_loop()
        super().__init__(lease, transaction)

    async def __aenter__(self) -> None:
        """Follow the transaction; if that fails, release the lease."""
        try:
            self._follow()
        except BaseException as error:
            await self._lease.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; a failure never hides the body's own error."""
        if self._is_body_last():
            await self._lease.__aexit__(kind, error, trace)

    def _release_late(self) -> None:  # asyncio only
        """Release before the commit returns, under SQLAlchemy's asyncio; otherwise in its own task, soon after."""
        if self._transaction is not None and self._transaction.has_run(self._released):
            return
        try:
            self._loop.call_soon_threadsafe(self._start_release)
        except RuntimeError:  # the loop is closed, and the lease expires
            _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": "the event loop is closed"})

    def _start_release(self) -> None:  # asyncio only
        task = self._loop.create_task(begun(self._released), name="segmented-release")
        _releasing.add(task)
        task.add_done_callback(_releasing.discard)

    # threads: def _release_late(self) -> None:
    # threads:     self._released()

    async def _released(self) -> None:
        try:
            await self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)


OnBusy = Literal["raise", "skip", "run"]
ON_BUSY: Final = ("raise", "skip", "run")


@dataclass(frozen=True, slots=True)
class Site:
    """One decorated function, with its key, its lock options and its transaction."""

    function: Callable[..., Any]
    key: CallKey
    options: LockOptions
    store: Any
    lease_as: str | None
    transaction: Path | None
    release_with: Callable[..., object] | None

    @property
    def who(self) -> str:
        """Return the function's name for messages."""
        return f"locked on {name_of(self.function)}"

    def begin(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, Transaction | None]:
        """Return the key of a call and the transaction that its lock outlives; locks nothing yet."""
        call = self.key.bind(arguments, options)
        name = self.key.name(call)
        if self.release_with is not None:
            hook = self.release_with
            return name, HookWatch(lambda release: hook(release, *arguments, **options))
        if self.transaction is None:
            return name, None
        from segmented.locks.sql_transactions import watched  # noqa: PLC0415  # SQLAlchemy is loaded where it is used

        return name, watched(call.read(self.transaction), f"{self.transaction.text!r} in {self.who}")

    def filled(self, options: dict[str, Any], lease: Lease | AsyncLease | None) -> dict[str, Any]:
        """Return the call's options, with the lease if the body takes it."""
        return options if self.lease_as is None else {**options, self.lease_as: lease}

    def finished(self, result: Any) -> Any:  # noqa: ANN401  # the function's own
        """Return the result. Raises for work that has not run yet and would run unlocked."""
        if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
            return result
        if isinstance(result, Coroutine):  # also an acquire that has not begun
            result.close()
        message = f"{self.who}: it returned {type(result).__name__}, which would run unlocked; decorate what makes it"
        raise InvalidInput(message)


async def async_acquired(site: Site, name: str) -> AsyncLease | None:
    """Try as often as asked; return None if the lock stays busy and `on_busy` is not "raise"."""
    store, failure = async_store(site.store, site.who), None
    lock = AsyncLock(store, name, ttl=site.options.ttl, renew=site.options.renew, renew_max=site.options.renew_max)
    for seconds in site.options.pauses():
        if seconds:
            await run_async(pause(name, store.clock.now() + seconds), store)
        try:
            return await lock.acquire(timeout=site.options.timeout)
        except AcquireTimeout as error:
            failure = error
    site.options.give_up(name, cast("AcquireTimeout", failure))
    return None


def async_held(lease: AsyncLease | None, transaction: Transaction | None) -> AsyncHolding | nullcontext[None]:
    """Return a context manager that holds a lease around a body; an empty one for a body that runs unlocked."""
    return nullcontext() if lease is None else AsyncHolding(lease, transaction)


def locking(site: Site) -> Callable[..., Any]:
    """Return the locked function, in its original shape."""
    match shape_of(site.function):
        case "coroutine function":
            return async_locked_function(site)
        case "async generator function":
            return _locked_async_generator(site)
        case "generator function":
            return _locked_generator(site)
    return locked_function(site)


def _locked_generator(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    def run(*arguments: Any, **options: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = acquired(site, name)
        if lease is None and not site.options.runs_unlocked:
            return site.options.instead(arguments, options)
        with held(lease, transaction):
            return (yield from site.function(*arguments, **site.filled(options, lease)))

    return run


def async_locked_function(site: Site) -> Callable[..., Any]:
    """Return the locked form of a coroutine function."""

    @wraps(site.function)
    async def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = await async_acquired(site, name)
        if lease is None and not site.options.runs_unlocked:
            found = site.options.instead(arguments, options)  # asyncio only
            return await found if inspect.isawaitable(found) else found  # asyncio only
            # threads: return site.options.instead(arguments, options)
        async with async_held(lease, transaction):
            return site.finished(await site.function(*arguments, **site.filled(options, lease)))

    return run


def _locked_async_generator(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    async def run(*arguments: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = await async_acquired(site, name)
        if lease is None and not site.options.runs_unlocked:
            found = site.options.instead(arguments, options)
            if inspect.isawaitable(found):
                await found
            return
        async with async_held(lease, transaction):
            items = site.function(*arguments, **site.filled(options, lease))
            sent: Any = None
            failure: BaseException | None = None
            while True:
                try:
                    item = await (items.asend(sent) if failure is None else items.athrow(failure))
                except StopAsyncIteration:
                    return
                sent, failure = None, None
                try:
                    sent = yield item
                except GeneratorExit:  # closed or collected
                    await items.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  # the body handles any error that was thrown in
                    failure = error

    return run


@dataclass(frozen=True, slots=True)
class LockOptions:
    """How to lock, how long to try, and what to do if the lock is busy; checked on creation."""

    ttl: Duration
    renew: bool
    renew_max: Duration
    timeout: Duration | None
    retries: int
    retry_every: float
    on_busy: OnBusy | Callable[..., object]

    def __post_init__(self) -> None:
        milliseconds(self.ttl, "ttl")
        milliseconds(self.renew_max, "renew_max")
        checked_timeout(self.timeout)
        if not is_whole(self.retries) or self.retries < 0:
            raise InvalidInput(f"retries of {self.retries!r} is not a number of further tries: give 0 or more")
        if not isfinite(self.retry_every) or self.retry_every < 0:
            raise InvalidInput(f"retry_every of {self.retry_every!r} s is not a time between tries: give 0 or more")
        if self.on_busy not in ON_BUSY and not callable(self.on_busy):
            raise InvalidInput(f"on_busy is {self.on_busy!r}: give one of {', '.join(ON_BUSY)}, or a callable")

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each try."""
        yield 0.0
        for _ in range(self.retries):
            yield self.retry_every

    @property
    def runs_unlocked(self) -> bool:
        """Return whether the caller asked explicitly to run the body without the lock."""
        return self.on_busy == "run"

    def give_up(self, name: str, error: AcquireTimeout) -> None:
        """Raise AcquireTimeout after the last try, with the time of all tries, unless `on_busy` says otherwise."""
        if self.on_busy == "raise":
            in_all = error.timeout * (self.retries + 1) + self.retry_every * self.retries
            raise AcquireTimeout(name, in_all, is_delayed=error.is_delayed) from error

    def instead(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401  # the caller's own
        """Return the result of a call whose body does not run."""
        return self.on_busy(*arguments, **options) if callable(self.on_busy) else None


P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")
S = TypeVar("S")

ASYNCHRONOUS: Final = ("coroutine function", "async generator function")


class Keeping(Protocol):
    """A decorator that keeps the type of a function."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate."""


class Skipping(Protocol):
    """A decorator whose function returns None if the lock is busy."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, Generator[Y, S, R]], /) -> Callable[P, Generator[Y, S, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, Iterator[Y]], /) -> Callable[P, Iterator[Y]]: ...
    @overload
    def __call__(self, function: Callable[P, AsyncIterator[Y]], /) -> Callable[P, AsyncIterator[Y]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def locked(
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    ttl: Duration = ...,
    renew: bool = ...,
    renew_max: Duration = ...,
    timeout: Duration | None = ...,
    retries: int = ...,
    retry_every: Duration = ...,
    on_busy: Literal["raise", "run"] | Callable[..., object] = ...,
    lease_as: str | None = ...,
    transaction: str | None = ...,
    release_with: Callable[..., object] | None = ...,
) -> Keeping: ...
@overload
def locked(
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    ttl: Duration = ...,
    renew: bool = ...,
    renew_max: Duration = ...,
    timeout: Duration | None = ...,
    retries: int = ...,
    retry_every: Duration = ...,
    on_busy: Literal["skip"],
    lease_as: str | None = ...,
    transaction: str | None = ...,
    release_with: Callable[..., object] | None = ...,
) -> Skipping: ...
def locked(  # noqa: PLR0913  # each is an option of its own, by name
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    ttl: Duration = DEFAULT_TTL,
    renew: bool = False,
    renew_max: Duration = DEFAULT_RENEW_MAX,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    retries: int = 0,
    retry_every: Duration = 1.0,
    on_busy: OnBusy | Callable[..., object] = "raise",
    lease_as: str | None = None,
    transaction: str | None = None,
    release_with: Callable[..., object] | None = None,
) -> Keeping | Skipping:
    """Run the decorated function under the lock named by `expression`, as in `"order:{order.activity_id}:{mobile}"`.

    The key is an expression over the call's arguments (see `key_expressions`), or a callable that takes them and
    returns the key. `store` is a store, or a callable that returns one when a call needs it: a sync store for a sync
    function, an async store for an async one.

    The lock lives `ttl` seconds; with `renew` it is kept alive in the background for `renew_max` seconds. Each try
    waits `timeout` seconds (None: forever, 0: no wait); after a failed try, up to `retries` more follow, `retry_every`
    seconds apart. If all fail, `on_busy` decides: "raise" AcquireTimeout, "skip" the body and return None, "run" it
    unlocked, or call a callable with the call's arguments and return its result.

    `lease_as` names an argument that passes the lease to the body (None if it runs unlocked); callers do not see it.
    Give it a default, so that type checkers let callers omit it.

    `transaction` names the argument, or a path such as `self.session`, that holds the caller's SQLAlchemy Session or
    Connection, sync or async. The lock is then kept until the body and the transaction that is open by then have both
    ended. A commit that the lease no longer covers raises LeaseLost. A transaction that is never ended keeps the lock
    while the lease lives. A connection's transaction counts as ended only when the next one begins on it or it is back
    in its pool, since SQLAlchemy sends no event after a commit. `release_with` does the same for other transactions: it
    is called before the body with a function and the call's arguments, and must arrange that the function is called
    when the transaction has ended.

    A generator is locked from its first `next` until it is exhausted, closed or garbage-collected; a generator that was
    never started holds nothing. One that is started and then left unused keeps its lock while the lease lives.

    Raises InvalidInput at decoration for an expression or option that does not fit the function.
    """
    options = LockOptions(ttl, renew, renew_max, timeout, retries, in_seconds(retry_every), on_busy)
    if transaction is not None and release_with is not None:
        raise InvalidInput("locked takes transaction or release_with, not both")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        checked_function(function, "@locked")
        who = f"locked on {name_of(function)}"
        check_given(store, who, is_async=shape_of(function) in ASYNCHRONOUS)
        key = CallKey(expression, function, filled=lease_as)
        path = None if transaction is None else _transaction_path(transaction, key, who)
        run = locking(Site(function, key, options, store, lease_as, path, release_with))
        setattr(run, KEY_ATTRIBUTE, key)
        if lease_as is not None:
            run.__signature__ = key.signature(lease_as)  # type: ignore[attr-defined]  # which inspect reads
        return run

    return decorate


def _transaction_path(text: str, key: CallKey, who: str) -> Path:
    where = f"transaction {text!r} in {who}"
    try:
        path = Path.parse(text)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error
    key.require(path, where)
    return path


# --- For threads: written by `make sync` from the classes above. ---


class Holding(_Ends[Lease]):
    """A lease around a body, for threads."""

    def __enter__(self) -> None:
        """Follow the transaction; if that fails, release the lease."""
        try:
            self._follow()
        except BaseException as error:
            self._lease.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; a failure never hides the body's own error."""
        if self._is_body_last():
            self._lease.__exit__(kind, error, trace)

    def _release_late(self) -> None:
        self._released()

    def _released(self) -> None:
        try:
            self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)


def acquired(site: Site, name: str) -> Lease | None:
    """Try as often as asked; return None if the lock stays busy and `on_busy` is not "raise"."""
    store, failure = sync_store(site.store, site.who), None
    lock = Lock(store, name, ttl=site.options.ttl, renew=site.options.renew, renew_max=site.options.renew_max)
    for seconds in site.options.pauses():
        if seconds:
            run_sync(pause(name, store.clock.now() + seconds), store)
        try:
            return lock.acquire(timeout=site.options.timeout)
        except AcquireTimeout as error:
            failure = error
    site.options.give_up(name, cast("AcquireTimeout", failure))
    return None


def held(lease: Lease | None, transaction: Transaction | None) -> Holding | nullcontext[None]:
    """Return a context manager that holds a lease around a body; an empty one for a body that runs unlocked."""
    return nullcontext() if lease is None else Holding(lease, transaction)


def locked_function(site: Site) -> Callable[..., Any]:
    """Return the locked form of a function."""

    @wraps(site.function)
    def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = acquired(site, name)
        if lease is None and not site.options.runs_unlocked:
            return site.options.instead(arguments, options)
        with held(lease, transaction):
            return site.finished(site.function(*arguments, **site.filled(options, lease)))

    return run
