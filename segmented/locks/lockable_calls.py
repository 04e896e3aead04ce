"""The four shapes of a locked function, thin around `Site`: function, coroutine, generator, async generator."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.call_keys import name_of, shape_of
from segmented.locks.given_stores import async_store, sync_store
from segmented.locks.holdings import AsyncHolding, Holding
from segmented.locks.lock import AsyncLock, Lock
from segmented.locks.transactions import HookWatch
from segmented.plans import pause, run_async, run_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from segmented.locks.call_keys import CallKey
    from segmented.locks.key_expressions import Path
    from segmented.locks.lease import AsyncLease, Lease
    from segmented.locks.lockable_options import LockOptions
    from segmented.locks.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Site:
    """One decorated function: what it locks, how, and until when."""

    function: Callable[..., Any]
    key: CallKey
    options: LockOptions
    store: Any
    lease_as: str | None
    transaction: Path | None
    release_with: Callable[..., object] | None

    @property
    def who(self) -> str:
        """Name the function in a message."""
        return f"lockable on {name_of(self.function)}"

    def begin(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, Transaction | None]:
        """Return the key of a call and the transaction that its lock outlives; nothing is locked yet."""
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
        """Try as often as asked; None when the lock stayed busy and something else is to be done."""
        store, failure = sync_store(self.store, self.who), None
        lock = Lock(store, name, ttl=self.options.lease, renew=self.options.renew, renew_max=self.options.renew_max)
        for seconds in self.options.pauses():
            if seconds:
                run_sync(pause(name, store.clock.now() + seconds), store)
            try:
                return lock.acquire(timeout=self.options.wait)
            except AcquireTimeout as error:
                failure = error
        self.options.give_up(name, cast("AcquireTimeout", failure))
        return None

    async def acquire_async(self, name: str) -> AsyncLease | None:
        """As `acquire`."""
        store, failure = async_store(self.store, self.who), None
        lock = AsyncLock(
            store, name, ttl=self.options.lease, renew=self.options.renew, renew_max=self.options.renew_max
        )
        for seconds in self.options.pauses():
            if seconds:
                await run_async(pause(name, store.clock.now() + seconds), store)
            try:
                return await lock.acquire(timeout=self.options.wait)
            except AcquireTimeout as error:
                failure = error
        self.options.give_up(name, cast("AcquireTimeout", failure))
        return None

    def filled(self, options: dict[str, Any], lease: Lease | AsyncLease | None) -> dict[str, Any]:
        """Return the call's options, with the lease where the body asked for it."""
        return options if self.lease_as is None else {**options, self.lease_as: lease}

    def finished(self, result: Any) -> Any:  # noqa: ANN401  # the function's own
        """Return a result, unless it is work that has not run yet and would run unlocked."""
        if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
            return result
        if isinstance(result, Coroutine):  # also an acquire that has not begun
            result.close()
        message = f"{self.who}: it returned {type(result).__name__}, which would run unlocked; decorate what makes it"
        raise InvalidInput(message)


def held(lease: Lease | None, transaction: Transaction | None) -> Holding | nullcontext[None]:
    """Hold a lease around a body; nothing for one that runs unlocked."""
    return nullcontext() if lease is None else Holding(lease, transaction)


def held_async(lease: AsyncLease | None, transaction: Transaction | None) -> AsyncHolding | nullcontext[None]:
    """As `held`."""
    return nullcontext() if lease is None else AsyncHolding(lease, transaction)


def locked(site: Site) -> Callable[..., Any]:
    """Return the function, locked, in the shape it has."""
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
                except GeneratorExit:  # closed, or thrown away
                    await items.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  # whatever was thrown in belongs to the body
                    failure = error

    return run
