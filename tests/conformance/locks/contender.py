"""A contender: any lock, ours or another library's, behind the interface that the conformance suite calls.

An adapter declares what its lock offers and translates the calls; it hides no faults. Its methods are coroutine
functions if the library's are, and then run in a task of the suite's event loop, else in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import redis

Client = Any
"""The library's own client."""
Handle = Any
"""The library's own lock object."""
Hold = Any
"""The object to release: a lease, or the lock itself if the library has no leases."""
Maybe = Any
"""A value, or its awaitable in an asynchronous adapter."""
Body = Callable[[Hold], Maybe]

WHY_NOT: Final = {
    "wire": "it runs in the memory of one process: nothing is sent, and nothing outlives it",
    "ttl": "what it holds ends with a session or a transaction, not after a time that was asked for",
    "alone": "it lets several holders in by design",
    "with": "it has no context manager",
    "telling": "nothing tells its holder that a lease was lost",
    "endless": "each of its leases has an end, and there is no way to ask for none",
    "renewal": "a lease cannot be renewed",
    "background": "it renews nothing in the background",
    "listening": "its waiters poll: there is no subscription that could miss a release, and no one to be woken",
    "cancelling": "it is for threads, and nobody cancels a call of a thread from outside",
    "fair": "it promises no order among its waiters",
    "quorum": "it is kept by one server, not by a majority",
    "replicas": "it cannot ask for the acknowledgement of replicas",
    "fencing": "its leases carry no fencing token",
    "reentrant": "nobody enters it twice",
    "decorator": "it has no decorator",
    "transaction": "it has no decorator that can be told of a transaction",
    "single flight": "it comes with no cache whose misses it guards",
    "rows": "it does not lock rows of a SQL database",
}
"""The features that a lock may offer, and why rows do not apply to locks without them."""


class NotOffered(Exception):
    """The lock does not offer what the row is about; the message says why."""


class RefusedAcquire(Exception):
    """The library refused by a return value instead of an error."""


class Contender(ABC):
    """One lock of one library, sync or async. Each row creates a new one.

    An adapter overrides a method that is not abstract only if its lock offers the feature.
    """

    title: str
    """Its name in the comparison, which adds threads or asyncio."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions are reported."""
    offers: frozenset[str] = frozenset()
    """The features it offers, keys of `WHY_NOT`."""
    lost: tuple[type[BaseException], ...] = ()
    """The errors for a lease that the holder has lost."""
    refused: tuple[type[BaseException], ...] = ()
    """The library's own errors for bad input, beside ValueError, TypeError and OverflowError."""
    why_not: Mapping[str, str] = WHY_NOT
    """Its own sentences for features it does not offer."""
    is_async: bool = False
    servers: int = 1
    names: int = 1
    """How many names a handle locks at once."""
    key_lapses: bool = True
    """Whether the server expires the key when the lease ends."""
    shortest_ttl: float = 0.2
    """Seconds of a short lease that can still be kept on a busy machine."""
    renewals_per_ttl: float = 3.0
    """How many times the background renews a lease within its time."""
    taking: bytes = b""
    """Part of a request that takes the lock, beside its name, if other requests have the name too."""
    listening: bytes = b""
    """The command with which a waiter subscribes to a wake-up."""

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """Return every error that counts as a refusal of bad input."""
        return (ValueError, TypeError, OverflowError, *self.refused)

    @abstractmethod
    def connect(self, urls: Sequence[str]) -> Maybe:
        """Create a client for the server or servers, as in the library's documentation."""

    @abstractmethod
    def close(self, client: Client) -> Maybe:
        """Close a client."""

    @abstractmethod
    def key(self, name: str) -> str:
        """Return the key that exists on the server exactly while the lock is held."""

    @abstractmethod
    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Create a handle whose leases last `ttl` seconds; None: the library's default."""

    def make_rival(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Create a handle that excludes one of `make`: of the same kind, unless that kind is shared."""
        return self.make(client, name, ttl)

    def make_endless(self, client: Client, name: str) -> Handle:
        """Create a handle whose leases have no end."""
        raise NotImplementedError

    def make_renewing(self, client: Client, name: str, ttl: float) -> Handle:
        """Create a handle whose leases are renewed in the background."""
        raise NotImplementedError

    def make_replicated(self, client: Client, name: str, replicas: int) -> Handle:
        """Create a handle whose acquisitions need that many replicas to acknowledge."""
        raise NotImplementedError

    @abstractmethod
    def acquire(self, handle: Handle, wait: float) -> Maybe:
        """Wait up to `wait` seconds (0: the library's own way of waiting for 0 s); return the hold, or None."""

    @abstractmethod
    def try_acquire(self, handle: Handle) -> Maybe:
        """Try once, without waiting; return the hold, or None."""

    @abstractmethod
    def release(self, hold: Hold) -> Maybe:
        """Release a held lock."""

    def renew(self, hold: Hold, ttl: float) -> Maybe:
        """Renew the lease for `ttl` seconds from now."""
        raise NotImplementedError

    def fencing_token(self, hold: Hold) -> int:
        """Return the number that grows with every grant."""
        raise NotImplementedError

    def run_inside(self, handle: Handle, body: Body) -> Maybe:
        """Run `body` in a `with` statement of the lock, and pass it the hold."""
        with handle:
            body(handle)

    def watch_loss(self, hold: Hold) -> Callable[[], bool]:
        """Watch for the loss of the lease; the returned function returns whether the holder was notified."""
        raise NotImplementedError

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Decorate `function` to run under the lock `name`, or not at all if the lock is not free at once."""
        raise NotImplementedError

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Like `decorate`, in a transaction of the caller; return the function, and the commit that follows."""
        raise NotImplementedError

    def guard_cache(self, client: Client, name: str, load: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Return a function that returns the value cached under `name`, and loads it on a miss."""
        raise NotImplementedError

    def lapse(self, hold: Hold) -> Maybe:
        """Expire the lease on the server, unnoticed by the holder; by default expires its key."""
        raise NotImplementedError

    def take_away(self, hold: Hold) -> Maybe:
        """End the lease at once, unnoticed by the holder; by default deletes its key."""
        raise NotImplementedError

    def rest(self, client: Client, waiters: int) -> Maybe:
        """Return whether that many waiters are idle; by default this is unknown."""
        raise NotImplementedError


class RedisClientContender(Contender):
    """A lock for threads whose client is redis-py's, with its defaults, retries included.

    Unless a method is overridden, its handle has `acquire(blocking=False)` and `release`.
    """

    def connect(self, urls: Sequence[str]) -> Client:
        """Create a client."""
        return redis.Redis(**client_arguments(urls[0]))

    def close(self, client: Client) -> None:
        """Close its connections."""
        client.close()

    def try_acquire(self, handle: Handle) -> Hold | None:
        """Try."""
        return handle if handle.acquire(blocking=False) else None

    def release(self, hold: Hold) -> None:
        """Release."""
        hold.release()


class AsyncContender(Contender):
    """A lock for asyncio, whose handle has `acquire(blocking=False)` and `release`, and is a context manager."""

    is_async = True

    async def try_acquire(self, handle: Handle) -> Hold | None:
        """Try."""
        return handle if await handle.acquire(blocking=False) else None

    async def release(self, hold: Hold) -> None:
        """Release."""
        await hold.release()

    async def run_inside(self, handle: Handle, body: Body) -> None:
        """Use it as a context manager."""
        async with handle:
            body(handle)


def client_arguments(url: str) -> dict[str, Any]:
    """Return the arguments of redis-py's constructor for a URL: a client made by `from_url` has no retries."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {"unix_socket_path": parts.path}
    return {"host": parts.hostname, "port": parts.port}
