"""A contender: any lock, of ours or of another library, behind the one face that the conformance suite calls.

An adapter says what its lock offers and translates the calls; it hides no fault. Its methods are coroutine functions
where the library's are, and are called in a task of the suite's event loop then, else in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Client = Any
"""The library's own client."""
Handle = Any
"""The library's own lock object."""
Hold = Any
"""What is released: a lease, or the lock object again where the library has no leases."""
Maybe = Any
"""A value, or in an asynchronous adapter the awaitable of one."""
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
"""What a lock may offer, and the sentence for one that does not."""


class NotOffered(Exception):
    """The lock does not offer what the row is about; the message says why."""


class RefusedAcquire(Exception):
    """The library refused by a value, where others raise."""


class Contender(ABC):
    """One lock of one library, in one colour. Made anew for every row.

    A method that is not abstract stays as it is where the lock does not offer what it is for.
    """

    title: str
    """How the comparison names it; its colour is said beside it."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions belong to the result."""
    offers: frozenset[str] = frozenset()
    """Which of the keys of `WHY_NOT` it has."""
    lost: tuple[type[BaseException], ...] = ()
    """The errors by which it says that a lease is no longer the holder's."""
    refused: tuple[type[BaseException], ...] = ()
    """The library's own errors for bad input, beside ValueError, TypeError and OverflowError."""
    why_not: Mapping[str, str] = WHY_NOT
    """The sentences for what it does not offer."""
    is_async: bool = False
    servers: int = 1
    key_lapses: bool = True
    """Does the server end the key by itself when the lease ends?"""
    shortest_ttl: float = 0.2
    """Seconds: a lease that is short, and is still kept on a busy machine."""
    renewals_per_ttl: float = 3.0
    """How often a lease is renewed in the background before it would end."""
    taking: bytes = b""
    """What is in a request that takes the lock, beside its name, if others name it too."""
    listening: bytes = b""
    """The command by which a waiter asks to be woken."""

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """Return every error that counts as a refusal of bad input."""
        return (ValueError, TypeError, OverflowError, *self.refused)

    @abstractmethod
    def connect(self, urls: Sequence[str]) -> Maybe:
        """Make a client as the library's documentation does, for the server or servers."""

    @abstractmethod
    def close(self, client: Client) -> Maybe:
        """Close a client."""

    @abstractmethod
    def key(self, name: str) -> str:
        """Return the key that is on the server while the lock is held, and only then."""

    @abstractmethod
    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle whose leases live `ttl` seconds; None: as long as the library has them live unasked."""

    def make_rival(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle that must not be held while one of `make` is: of the same kind, unless that is shared."""
        return self.make(client, name, ttl)

    def make_endless(self, client: Client, name: str) -> Handle:
        """Make a handle whose leases have no end."""
        raise NotImplementedError

    def make_renewing(self, client: Client, name: str, ttl: float) -> Handle:
        """Make a handle whose leases are renewed in the background."""
        raise NotImplementedError

    def make_replicated(self, client: Client, name: str, replicas: int) -> Handle:
        """Make a handle whose acquires stand only when so many replicas have acknowledged them."""
        raise NotImplementedError

    @abstractmethod
    def acquire(self, handle: Handle, wait: float) -> Maybe:
        """Wait up to `wait` seconds (0: the library's own way of waiting for 0 s); return the hold, or None."""

    @abstractmethod
    def try_acquire(self, handle: Handle) -> Maybe:
        """Try once, without waiting; return the hold, or None."""

    @abstractmethod
    def release(self, hold: Hold) -> Maybe:
        """Give a held lock back."""

    def renew(self, hold: Hold, ttl: float) -> Maybe:
        """Have the lease live for `ttl` seconds from now."""
        raise NotImplementedError

    def fencing_token(self, hold: Hold) -> int:
        """Return the number that grows with every grant."""
        raise NotImplementedError

    def run_inside(self, handle: Handle, body: Body) -> Maybe:
        """Run `body` in a `with` statement of the lock, and give it the hold."""
        raise NotImplementedError

    def watch_loss(self, hold: Hold) -> Callable[[], bool]:
        """Begin to listen for the loss of the lease; what is returned says whether the holder has been told."""
        raise NotImplementedError

    def key_life_max_ms(self, ttl_ms: int) -> int:
        """Return how long the key of a lease of `ttl_ms` may live on the server."""
        return ttl_ms

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Have `function` run under the lock `name`, or not at all when that is not free at once."""
        raise NotImplementedError

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Do as `decorate` does, in a transaction of the caller's; return the function, and the commit that follows."""
        raise NotImplementedError

    def guard_cache(self, client: Client, name: str, load: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Return a function that gives what is cached under `name`, and has it loaded when nothing is."""
        raise NotImplementedError

    def lapse(self, hold: Hold) -> Maybe:
        """End the lease on the server as its time would, unseen by the holder; by default that of its key."""
        raise NotImplementedError

    def take_away(self, hold: Hold) -> Maybe:
        """End the lease at once, unseen by the holder; by default its key is deleted."""
        raise NotImplementedError

    def rest(self, client: Client, waiters: int) -> Maybe:
        """Say whether so many waiters have come to rest; by default there is no telling."""
        raise NotImplementedError
