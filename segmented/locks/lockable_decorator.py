"""`lockable`: a decorator that runs a function under the lock that a key expression names.

Guarantees: the body runs only while the lock is held, from its first step to its last, in functions, coroutine
functions, generators and async generators alike; it runs unlocked only with `on_busy="run"`. The key is evaluated once
a call, before anything else happens.

Not guaranteed: what a lease cannot give. A body that takes longer than `lease` seconds without `renew` has lost its
lock before it ends, and then the call raises LeaseLost although the body ran; a resource that refuses old fencing
tokens (`lease_as`) is protected also then. The lock is not reentrant: a function that calls itself under the same key
waits for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from segmented.errors import InvalidInput
from segmented.locks.call_keys import KEY_ATTRIBUTE, CallKey, checked_function, name_of, shape_of
from segmented.locks.durations import DEFAULT_WAIT
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL
from segmented.locks.key_expressions import Path
from segmented.locks.lockable_calls import LockOptions, OnBusy, Site, locked
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
    """A decorator that leaves the type of a function as it is."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate."""


class Skipping(Protocol):
    """A decorator whose function gives None when the lock is busy."""

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
def lockable(
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    lease: float = ...,
    renew: bool = ...,
    renew_max: float = ...,
    wait: float | None = ...,
    retries: int = ...,
    retry_every: float = ...,
    on_busy: Literal["raise", "run"] | Callable[..., object] = ...,
    lease_as: str | None = ...,
    transaction: str | None = ...,
    release_with: Callable[..., object] | None = ...,
) -> Keeping: ...
@overload
def lockable(
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    lease: float = ...,
    renew: bool = ...,
    renew_max: float = ...,
    wait: float | None = ...,
    retries: int = ...,
    retry_every: float = ...,
    on_busy: Literal["skip"],
    lease_as: str | None = ...,
    transaction: str | None = ...,
    release_with: Callable[..., object] | None = ...,
) -> Skipping: ...
def lockable(  # noqa: PLR0913  # each is an option of its own, by name
    expression: str | Callable[..., str],
    *,
    store: GivenStore,
    lease: float = DEFAULT_TTL,
    renew: bool = False,
    renew_max: float = DEFAULT_RENEW_MAX,
    wait: float | None = DEFAULT_WAIT,
    retries: int = 0,
    retry_every: float = 1.0,
    on_busy: OnBusy | Callable[..., object] = "raise",
    lease_as: str | None = None,
    transaction: str | None = None,
    release_with: Callable[..., object] | None = None,
) -> Keeping | Skipping:
    """Run the decorated function under the lock named by `expression`, as in `"order:{order.activity_id}:{mobile}"`.

    The key is an expression over the call's arguments (see `key_expressions`), or a callable that takes them and
    returns it. `store` is a store, or a callable that gives one when a call needs it: of the colour of the function.

    The lock: `lease` seconds of life, with `renew` kept alive in the background for `renew_max` seconds. Each try waits
    `wait` seconds (None: for ever, 0: not at all); after a try that failed follow `retries` more, `retry_every` seconds
    apart. When all have failed, `on_busy` decides: "raise" AcquireTimeout, "skip" the body and give None, "run" it
    unlocked, or a callable that is given the call's arguments and whose result the call gives.

    `lease_as` names an argument that the body is given the lease in (None when it runs unlocked); callers do not see
    it. Give it a default, so that type checkers let them leave it out.

    `transaction` names the argument, or a path such as `self.session`, that holds the SQLAlchemy Session or Connection
    of the caller, also an asynchronous one. The lock is then kept until the later of two ends: that of the body, and
    that of the transaction that is open by then. A commit that the lease no longer covers is refused with LeaseLost. A
    transaction that nobody ends keeps the lock for as long as the lease lives. A connection's transaction counts as
    over only when the next begins on it or it is back in its pool, since no event comes after its commit.
    `release_with` is the same for anything else: it is called with a function and then the call's arguments, before
    the body, and sees to it that the function is called when the transaction has ended.

    A generator is locked from its first `next` until it is exhausted, closed or thrown away; one that was never started
    holds nothing. One that is merely left lying about keeps its lock, for as long as the lease lives.

    Raises InvalidInput, at once, for an expression or option that does not fit the function.
    """
    options = LockOptions(lease, renew, renew_max, wait, retries, retry_every, on_busy)
    if transaction is not None and release_with is not None:
        message = "lockable takes transaction or release_with, not both"
        raise InvalidInput(message)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        checked_function(function, "@lockable")
        who = f"lockable on {name_of(function)}"
        check_given(store, who, is_async=shape_of(function) in ASYNCHRONOUS)
        key = CallKey(expression, function, filled=lease_as)
        path = None if transaction is None else _transaction_path(transaction, key, who)
        run = locked(Site(function, key, options, store, lease_as, path, release_with))
        setattr(run, KEY_ATTRIBUTE, key)
        if lease_as is not None:
            run.__signature__ = key.signature(lease_as)  # type: ignore[attr-defined]  # what inspect looks for
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
