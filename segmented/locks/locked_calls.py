"""The four shapes of a locked function, thin around `Site`: function, coroutine, generator, async generator.

`LockOptions` holds the options of `locked` for the lock, the waiting, and a lock that stays busy.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.call_keys import name_of, shape_of
from segmented.locks.durations import checked_timeout, is_whole, milliseconds
from segmented.locks.holdings import AsyncHolding, Holding, HookWatch
from segmented.locks.lock import AsyncLock, Lock
from segmented.plans import pause, run_async, run_sync
from segmented.plans.store_kinds import async_store, sync_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

    from segmented.clock import Duration
    from segmented.locks.call_keys import CallKey
    from segmented.locks.holdings import Transaction
    from segmented.locks.key_expressions import Path
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
    def run(*arguments: Any, **options: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401  # as above
        name, transaction = site.begin(arguments, options)
        lease = site.acquire(name)
        if lease is None and not site.options.runs_unlocked:
            return site.options.instead(arguments, options)
        with held(lease, transaction):
            return (yield from site.function(*arguments, **site.filled(options, lease)))

    return run


def _locked_coroutine(site: Site) -> Callable[..., Any]:
    @wraps(site.function)
    async def run(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as above
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
    async def run(*arguments: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # as above
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
        """Raise InvalidInput for an unusable option."""
        milliseconds(self.ttl, "ttl")
        milliseconds(self.renew_max, "renew_max")
        checked_timeout(self.timeout)
        if not is_whole(self.retries) or self.retries < 0:
            message = f"retries of {self.retries!r} is not a number of further tries: give 0 or more"
            raise InvalidInput(message)
        if not isfinite(self.retry_every) or self.retry_every < 0:
            message = f"retry_every of {self.retry_every!r} s is not a time between tries: give 0 or more"
            raise InvalidInput(message)
        if self.on_busy not in ON_BUSY and not callable(self.on_busy):
            message = f"on_busy is {self.on_busy!r}: give one of {', '.join(ON_BUSY)}, or a callable"
            raise InvalidInput(message)

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
