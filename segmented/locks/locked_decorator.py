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

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from segmented.clock import Duration, in_seconds
from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, Path, checked_function, name_of, shape_of
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout, is_whole, milliseconds
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL
from segmented.locks.holdings import AsyncHolding, Holding, HookWatch, Transaction
from segmented.locks.lock import AsyncLock, Lock
from segmented.plans import pause, run_async, run_sync
from segmented.plans.store_kinds import async_store, check_given, sync_store

if TYPE_CHECKING:
    from segmented.plans.drivers import AsyncStore, Store

    GivenStore = Store | AsyncStore | Callable[[], Store] | Callable[[], AsyncStore]
    from segmented.locks.lease import AsyncLease, Lease

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

    def acquire(self, name: str) -> Lease | None:
        """Try as often as asked; return None if the lock stays busy and `on_busy` is not "raise"."""
        store, failure = sync_store(self.store, self.who), None
        lock = Lock(store, name, ttl=self.options.ttl, renew=self.options.renew, renew_max=self.options.renew_max)
        for seconds in self.options.pauses():
            if seconds:
                run_sync(pause(name, store.clock.now() + seconds), store)
            try:
                return lock.acquire(timeout=self.options.timeout)
            except AcquireTimeout as error:
                failure = error
        self.options.give_up(name, cast("AcquireTimeout", failure))
        return None

    async def acquire_async(self, name: str) -> AsyncLease | None:
        """Try as often as asked; see `acquire`."""
        store, failure = async_store(self.store, self.who), None
        lock = AsyncLock(store, name, ttl=self.options.ttl, renew=self.options.renew, renew_max=self.options.renew_max)
        for seconds in self.options.pauses():
            if seconds:
                await run_async(pause(name, store.clock.now() + seconds), store)
            try:
                return await lock.acquire(timeout=self.options.timeout)
            except AcquireTimeout as error:
                failure = error
        self.options.give_up(name, cast("AcquireTimeout", failure))
        return None

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


def held(lease: Lease | None, transaction: Transaction | None) -> Holding | nullcontext[None]:
    """Return a context manager that holds a lease around a body; an empty one for a body that runs unlocked."""
    return nullcontext() if lease is None else Holding(lease, transaction)


def held_async(lease: AsyncLease | None, transaction: Transaction | None) -> AsyncHolding | nullcontext[None]:
    """Return a context manager that holds a lease around a body; see `held`."""
    return nullcontext() if lease is None else AsyncHolding(lease, transaction)


def locking(site: Site) -> Callable[..., Any]:
    """Return the locked function, in its original shape."""
    match shape_of(site.function):
        case "coroutine function":
            return _locked_coroutine(site)
        case "async generator function":
            return _locked_async_generator(site)
        case "generator function":
            return _locked_generator(site)
    return _locked_function(site)


def _locked_function(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = site.acquire(name)
        if lease is None and not site.options.runs_unlocked:
            return site.options.instead(arguments, options)
        with held(lease, transaction):
            return site.finished(site.function(*arguments, **site.filled(options, lease)))

    return run


def _locked_generator(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    def run(*arguments: Any, **options: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = site.acquire(name)
        if lease is None and not site.options.runs_unlocked:
            return site.options.instead(arguments, options)
        with held(lease, transaction):
            return (yield from site.function(*arguments, **site.filled(options, lease)))

    return run


def _locked_coroutine(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    async def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = await site.acquire_async(name)
        if lease is None and not site.options.runs_unlocked:
            found = site.options.instead(arguments, options)
            return await found if inspect.isawaitable(found) else found
        async with held_async(lease, transaction):
            return site.finished(await site.function(*arguments, **site.filled(options, lease)))

    return run


def _locked_async_generator(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    async def run(*arguments: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # the types of the function pass through
        name, transaction = site.begin(arguments, options)
        lease = await site.acquire_async(name)
        if lease is None and not site.options.runs_unlocked:
            found = site.options.instead(arguments, options)
            if inspect.isawaitable(found):
                await found
            return
        async with held_async(lease, transaction):
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
