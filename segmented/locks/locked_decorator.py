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

from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from segmented.clock import Duration, in_seconds
from segmented.errors import InvalidInput
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, checked_function, name_of, shape_of
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL
from segmented.locks.key_expressions import Path
from segmented.locks.locked_calls import LockOptions, OnBusy, Site, locking
from segmented.plans.store_kinds import check_given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator

    from segmented.plans.drivers import AsyncStore, Store

    GivenStore = Store | AsyncStore | Callable[[], Store] | Callable[[], AsyncStore]

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
        message = "locked takes transaction or release_with, not both"
        raise InvalidInput(message)

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
        message = f"{where}: {error}"
        raise InvalidInput(message) from error
    key.require(path, where)
    return path
