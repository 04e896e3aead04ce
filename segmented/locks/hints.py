"""Hints for names and arguments of other libraries' locks that ours do not have: the error says what to use instead."""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOCK_HINTS: Final = {
    "release": "the lease that acquire() returned has it: {wait}lease.release()",
    "extend": "the lease that acquire() returned has it as renew: {wait}lease.renew(ttl=seconds)",
    "reacquire": "the lease that acquire() returned has it as renew: {wait}lease.renew()",
    "owned": "use the lease that acquire() returned: lease.is_trusted",
    "local": "use the lease that acquire() returned: lease.holder_id",
    "token": "use the lease that acquire() returned: lease.holder_id, or lease.fencing_token for a resource",
    "timeout": "the lock's time to live is its ttl, and acquire(timeout=seconds) is how long to wait",
    "blocking": "use {wait}lock.try_acquire() to try without waiting",
    "blocking_timeout": "use {wait}lock.acquire(timeout=seconds)",
    "sleep": "a waiting acquire is notified of the release and never polls",
}
SHOWN_HINTS: Final = {"locked": "the lock tells it: {wait}lock.is_locked()"}
LEASE_HINTS: Final = {
    "extend": "it is called renew: {wait}lease.renew(ttl=seconds)",
    "reacquire": "it is called renew: {wait}lease.renew()",
    "owned": "it is called is_trusted: lease.is_trusted",
    "locked": "it is called is_trusted: lease.is_trusted",
    "acquire": "it is held already: the lock has acquire()",
    "local": "its token is called holder_id: lease.holder_id",
    "token": "it is called lease.holder_id, or lease.fencing_token for a resource",
    "timeout": "its time to live is lease.ttl_ms, and lease.remaining() is what is left",
    "adopt": "the lock has it: {wait}lock.adopt(holder_id)",
}


class Hinted:
    """Adds to the AttributeError of a name in `_hints` what to use instead. Type checkers see no further names."""

    _hints: ClassVar[Mapping[str, str]] = {}
    _is_awaited: ClassVar[bool] = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with a hint if there is one."""
            kind = type(self).__name__
            hint = self._hints.get(name)
            if hint is None:
                message = f"{kind!r} object has no attribute {name!r}"
            else:
                message = f"{kind} has no {name!r}: {hint.format(wait='await ' if self._is_awaited else '')}"
            raise AttributeError(message, name=name, obj=self)


BLOCKING: Final = ("blocking", "blocking_timeout")
"""The arguments of threading's and redis-py's `acquire` that say whether and how long to wait."""


class AcquireHinted:
    """Makes `acquire(blocking=False)` and `acquire(True, 5)` raise InvalidInput with the call to use instead."""

    def __init_subclass__(cls) -> None:
        """Wrap the `acquire` that the class defines."""
        super().__init_subclass__()
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
        message = (
            f"{kind}.acquire() has no {refused}: use {call}.try_acquire() to try without waiting, "
            f"or {call}.acquire(timeout=seconds) to wait"
        )
        raise InvalidInput(message)
