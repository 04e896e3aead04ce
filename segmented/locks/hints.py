"""Hints for names and arguments of other libraries' locks that ours do not have: the error says what to use instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar, cast

from segmented.errors import InvalidInput

KindT = TypeVar("KindT")


def _each(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


_RENEWS: Final = "extend reacquire renew refresh expire prolong"
_RELEASES: Final = "release unlock"
_SHOWS: Final = "locked is_locked isLocked"
_TRY: Final = "use {wait}lock.try_acquire(), or {wait}lock.acquire(timeout=seconds) to wait"
LOCK_HINTS: Final = {
    **_each(_RELEASES, "the lease that acquire() returned has it: {wait}lease.release()"),
    **_each(_RENEWS, "the lease that acquire() returned has it as renew: {wait}lease.renew(ttl=seconds)"),
    **_each("owned isHeldByCurrentThread", "use the lease that acquire() returned: lease.is_trusted"),
    **_each("local get_owner_id", "use the lease that acquire() returned: lease.holder_id"),
    "token": "use the lease that acquire() returned: lease.holder_id, or lease.fencing_token for a resource",
    "timeout": "the lock's time to live is its ttl, and acquire(timeout=seconds) is how long to wait",
    "blocking": "use {wait}lock.try_acquire() to try without waiting",
    "blocking_timeout": "use {wait}lock.acquire(timeout=seconds)",
    "sleep": "a waiting acquire is notified of the release and never polls",
    **_each("reset forceUnlock force_unlock force_release", "an operator ends leases: segmented lock revoke NAME"),
    "lock": "use {wait}lock.acquire(timeout=seconds)",
    **_each("tryLock try_lock tryAcquire", _TRY),
    **_each(_SHOWS, "use {wait}lock.try_acquire(), which acquires it if it is free"),
    "remainTimeToLive": "the lease that acquire() returned has it: lease.remaining()",
}
SHOWN_HINTS: Final = LOCK_HINTS | _each("locked isLocked", "the lock tells it: {wait}lock.is_locked()")
"""Hints for a lock that has `is_locked`."""
LEASE_HINTS: Final = {
    **_each(_RENEWS, "it is called renew: {wait}lease.renew(ttl=seconds)"),
    **_each("owned locked", "it is called is_trusted: lease.is_trusted"),
    "unlock": "it is called release: {wait}lease.release()",
    "acquire": "it is held already: the lock has acquire()",
    "local": "its token is called holder_id: lease.holder_id",
    "token": "it is called lease.holder_id, or lease.fencing_token for a resource",
    "timeout": "its time to live is lease.ttl_ms, and lease.remaining() is what is left",
    "adopt": "the lock has it: {wait}lock.adopt(holder_id)",
}


_OPERATED: Final = "reset forceUnlock force_unlock force_release"
_NO_LIFE: Final = {"timeout": "acquire(timeout=seconds) is how long to wait; the lock has no time to live"}
SESSION_HINTS: Final = {
    **LOCK_HINTS,
    **_NO_LIFE,
    **_each(_RENEWS, "the lock needs no renewal: it ends with its ZooKeeper session"),
    **_each(_OPERATED, "a lock ends with its ZooKeeper session, or when its node below lock.path is deleted"),
}
SESSION_LEASE_HINTS: Final = {
    **LEASE_HINTS,
    **_each(f"{_RENEWS} timeout", "it needs no renewal: it ends with its ZooKeeper session"),
    **_each("adopt", "a session cannot hand its lock to another"),
}
_TRANSACTION: Final = "the transaction holds the name until it ends: commit it or roll it back"
ROW_HINTS: Final = {
    **LOCK_HINTS,
    **_NO_LIFE,
    **_each(
        f"{_RELEASES} {_RENEWS} {_OPERATED} owned isHeldByCurrentThread local get_owner_id remainTimeToLive",
        _TRANSACTION,
    ),
    "token": "the row that acquire() returned has it: fencing_token",
}
HELD_ROW_HINTS: Final = {
    **_each(" ".join((*LEASE_HINTS, "release")), _TRANSACTION),
    "token": "it is called fencing_token",
}
FIXED_HINTS: Final = {
    **LOCK_HINTS,
    **_each(_RENEWS, "this lock cannot be renewed: give it a ttl that is longer than the work"),
    **_each("local get_owner_id token", "this lock has no token: the holder knows only when its lease ends"),
}
FIXED_LEASE_HINTS: Final = {
    **LEASE_HINTS,
    **_each(_RENEWS, "it cannot be renewed: give the lock a ttl that is longer than the work"),
    **_each("local token adopt", "it has no token: its holder knows only when it ends, which is lease.expires_at"),
    "timeout": "lease.remaining() is what is left of its time to live",
}
SIDES_HINTS: Final = _each(
    f"{' '.join(LOCK_HINTS)} acquire try_acquire readLock writeLock read_lock write_lock gen_rlock gen_wlock",
    "it has two sides: {wait}lock.read.acquire(timeout=seconds) and {wait}lock.write.acquire(timeout=seconds)",
)


_TTL: Final = "the time to live is ttl=seconds"
_WAIT: Final = "how long to wait is said later: {wait}{one}(timeout=seconds)"
_RENEW: Final = "a lease is renewed in the background with renew=True"
_NOTIFIED: Final = "a waiting call is notified of the release and never polls; {wait}{one}(timeout=seconds) bounds it"
_NAME: Final = "the name is the second argument"
_STORE: Final = "the server is the first argument, a store: RedisStore.from_url(url)"
OPTION_HINTS: Final = {
    "timeout": f"{_TTL}, and {_WAIT}",
    **_each(
        "expire expires expiry expiration ex px lease lease_time "
        "leaseTime lock_timeout lock_ttl ttl_ms duration auto_release_time lockAtMostFor time_to_live",
        _TTL,
    ),
    **_each(
        "auto_renewal auto_renew autorenew auto_extend auto_refresh renewal watchdog lock_watchdog_timeout", _RENEW
    ),
    **_each("blocking_timeout acquire_timeout wait_time waitTime wait_timeout max_wait waiting_time", _WAIT),
    "blocking": f"{_WAIT}; timeout=0 tries once",
    **_each("sleep retry_delay retry_interval retry_times retry_count retries interval", _NOTIFIED),
    "thread_local": "a lease belongs to the caller that has it, not to a thread: pass it on",
    **_each("id token owner owner_id holder_id", "each lease has a holder_id of its own"),
    **_each("key lock_name lock_key resource", _NAME),
    **_each("redis redis_client redis_connection connection client server servers masters", _STORE),
    "strict": "a RedisStore checks its client by itself",
    "signal_expire": "a lock that is free is acquired at once, without a list of signals",
    "raise_on_redis_errors": "a server that does not answer always raises StoreUnavailable",
}
"""Arguments with which other libraries make a lock (redis-py, python-redis-lock, redlock-py, aioredlock, Redisson,
pottery) -> ours. `{one}` is the method that waits."""
ENDLESS_HINTS: Final = {
    name: hint.replace(_TTL, "the lock has no time to live: it ends with its transaction or session").replace(
        _RENEW, "the lock needs no renewal: it ends with its transaction or session"
    )
    for name, hint in OPTION_HINTS.items()
}
POOL_HINTS: Final = OPTION_HINTS | {
    "name": "the sku is the second argument",
    **_each("stock segments segment_count quantity", "use {wait}pool.open(stock=units, segments=K)"),
    "limit": "use {wait}pool.open(stock=units, segments=K, limit=units)",
    "renew": "a grant is not renewed: hold=seconds is how long its units stay reserved",
}
ONCE_HINTS: Final = {
    "keys": 'the key is an expression over the arguments, the first argument: "{{order_id}}"',
    "unique_on": 'the key is an expression over the arguments, the first argument: "{{order_id}}"',
    "graceful": "a repeat gets the first handle; its is_repeat says so",
    "raise_on_duplicate": "a repeat gets the first handle; its is_repeat says so",
    "unlock_before_run": "use latest(key): a call during a run makes one more run",
    **_each(
        "expire expires expiry expiration lock_expiry default_timeout lock_ttl",
        "ttl=seconds is how long a dead worker keeps its run, and keep=seconds how long repeats get the result",
    ),
    **_each("blocking blocking_timeout", "use serial(key): every message runs, one at a time"),
    "backend": "the records are where app.conf.once_url says",
}
"""Options of celery-once and celery-singleton -> ours."""


def hinted_options(
    hints: Mapping[str, str], *, waits: str = "lock.acquire", at: str = ""
) -> Callable[[type[KindT]], type[KindT]]:
    """Return a class decorator: an argument of another library raises InvalidInput with the call to use instead.

    `waits` is the method of the class that waits. `at` names how an instance is made, if not by the store and a name.
    """

    def decorated(kind: type[KindT]) -> type[KindT]:
        init = cast("Callable[..., None]", vars(kind)["__init__"])
        code = inspect.unwrap(init).__code__
        known = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

        @wraps(init)
        def hinted(made: object, *args: object, **named: object) -> None:
            if len(args) >= code.co_argcount or not named.keys() <= known:
                _check_options(type(made).__name__, args[code.co_argcount - 1 :], named.keys() - known)
            init(made, *args, **named)

        def _check_options(name: str, extra: tuple[object, ...], unknown: set[str]) -> None:
            is_async = name.startswith("Async")
            refused = min(unknown & hints.keys(), default=None)
            if refused is not None:
                hint = hints[refused].format(wait="await " * is_async, one=waits)
                raise InvalidInput(f"{name}() has no {refused}: {hint}")
            if extra:
                message = f"{name}() takes its options by name, as in {at or f'{name}(store, name, ttl=seconds)'}"
                raise InvalidInput(message)

        setattr(kind, "__init__", hinted)  # noqa: B010  # mypy refuses an assignment to it
        return kind

    return decorated


class Hinted:
    """Adds to the AttributeError of a name in `_hints` what to use instead. Type checkers see no further names."""

    __slots__ = ()
    _hints: ClassVar[Mapping[str, str]] = LOCK_HINTS

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with a hint if there is one."""
            kind = type(self).__name__
            hint = self._hints.get(name)
            if hint is None:
                message = f"{kind!r} object has no attribute {name!r}"
            else:
                is_async = any(one.__name__.startswith("Async") for one in type(self).__mro__)
                message = f"{kind} has no {name!r}: {hint.format(wait='await ' * is_async)}"
            raise AttributeError(message, name=name, obj=self)


BLOCKING: Final = ("blocking", "blocking_timeout")
"""The arguments of threading's and redis-py's `acquire` that say whether and how long to wait."""


class AcquireHinted(Hinted):
    """Makes `acquire(blocking=False)` and `acquire(True, 5)` raise InvalidInput with the call to use instead."""

    _option_hints: ClassVar[Mapping[str, str]] = OPTION_HINTS

    def __init_subclass__(cls) -> None:
        """Wrap the `acquire` and the `__init__` that the class defines."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            hinted_options(cls._option_hints)(cls)
        if "acquire" in vars(cls):
            cls.acquire = _hinted(cls.acquire)  # type: ignore[attr-defined]  # each kind of lock has one of its own


def _hinted(acquire: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(acquire):

        @wraps(acquire)
        async def hinted(lock: object, *args: object, **named: object) -> object:
            _check_arguments(lock, args, named)
            return await acquire(lock, *args, **named)

    else:

        @wraps(acquire)
        def hinted(lock: object, *args: object, **named: object) -> object:
            _check_arguments(lock, args, named)
            return acquire(lock, *args, **named)

    return hinted


def _check_arguments(lock: object, args: tuple[object, ...], named: Mapping[str, object]) -> None:
    if len(args) < 2 and not named:  # noqa: PLR2004  # the usual call
        return
    refused = "second argument" if len(args) > 1 else next((name for name in BLOCKING if name in named), None)
    if refused is not None:
        kind = type(lock).__name__
        call = f"{'await ' * kind.startswith('Async')}lock"
        raise InvalidInput(
            f"{kind}.acquire() has no {refused}: use {call}.try_acquire() to try without waiting, "
            f"or {call}.acquire(timeout=seconds) to wait"
        )
