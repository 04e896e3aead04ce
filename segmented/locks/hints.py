"""The first guess is answered: a name of another library's lock raises an error with the call to use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from segmented.errors import InvalidInput

KindT = TypeVar("KindT")


def _each(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


_TTL: Final = "the time to live is ttl=seconds, for a kind of lock that has one"
_WAIT: Final = "acquire(timeout=seconds) says how long to wait, as does grant(timeout=seconds) of a pool"
_TRY: Final = "use try_acquire() to try without waiting, or acquire(timeout=seconds) to wait"
OPTIONS: Final = {
    "timeout": f"{_TTL}; {_WAIT}",
    **_each("expire expires expiry expiration ex px lease lease_time leaseTime lock_timeout ttl_ms duration", _TTL),
    **_each("auto_renewal auto_renew auto_extend auto_refresh watchdog", "renew=True renews a lease in the background"),
    **_each("blocking_timeout acquire_timeout wait_time waitTime wait_timeout max_wait", _WAIT),
    "blocking": _TRY,
    **_each("sleep retry_delay retry_interval retry_times retry_count retries", f"a waiter never polls; {_WAIT}"),
    "thread_local": "a lease belongs to the caller that has it, not to a thread: pass it on",
    **_each("id token owner", "each lease has a holder_id of its own"),
    **_each("key lock_name resource", "the name is the second argument"),
    **_each("redis redis_client connection client masters", "the first argument is RedisStore.from_url(url)"),
    **_each("stock segments quantity", "use open(stock=units, segments=K)"),
}
"""Arguments with which other libraries make a lock (redis-py, python-redis-lock, redlock-py, Redisson) -> ours."""
METHODS: Final = {
    **_each("release unlock", "the lease that acquire() returned has it: lease.release()"),
    **_each("extend reacquire renew refresh expire", "lease.renew(ttl=seconds), of a lease that can be renewed"),
    **_each("locked is_locked isLocked owned", "lease.is_trusted says it of one's own lease; a Lock has is_locked()"),
    **_each("reset forceUnlock force_unlock", "an operator ends leases: segmented lock revoke NAME"),
    **_each("acquire lock tryLock try_lock tryAcquire", f"{_TRY}, on the lock, or its side"),
    **_each("token local", "lease.holder_id, or lease.fencing_token for a resource"),
    "timeout": f"{_TTL}; lease.remaining() is what is left",
}
"""Methods and attributes of such locks and of what they return -> ours."""


def answered(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a function, unless it takes any argument: one of another library raises InvalidInput, with ours."""
    known = inspect.signature(call).parameters if inspect.isfunction(call) else {}
    if not known or any(one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD} for one in known.values()):
        return call
    own = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in known.values())

    @wraps(call)
    def checked(*args: object, **named: object) -> object:
        if len(args) > own or not named.keys() <= known.keys():
            where = f"{type(args[0]).__name__}{name}"
            refused = min(named.keys() & OPTIONS.keys() - known.keys(), default=None)
            if refused is not None:
                raise InvalidInput(f"{where}() has no {refused}: {_TRY if name else OPTIONS[refused]}")
            if len(args) > own:
                raise InvalidInput(f"{where}() takes its options by name: {_TRY if name else _TTL}")
        return call(*args, **named)

    return checked


def hinted(kind: type[KindT]) -> type[KindT]:
    """Class decorator: the class answers the options of other libraries."""
    setattr(kind, "__init__", answered(vars(kind)["__init__"], ""))  # noqa: B010  # mypy refuses an assignment to it
    return kind


class Hinted:
    """Adds to the AttributeError of a name in `METHODS` what to use instead. Type checkers see no further names."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Wrap `__init__` and `acquire` of each class that defines one."""
        super().__init_subclass__()
        if "__init__" in vars(cls) and "acquire" in dir(cls):
            hinted(cls)
        if "acquire" in vars(cls):
            cls.acquire = answered(vars(cls)["acquire"], ".acquire")  # type: ignore[attr-defined]  # each kind has its own

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with a hint if there is one."""
            kind, hint = type(self).__name__, METHODS.get(name)
            message = (
                f"{kind!r} object has no attribute {name!r}" if hint is None else f"{kind} has no {name!r}: {hint}"
            )
            raise AttributeError(message, name=name, obj=self)
