"""Locks that are broken on purpose, each as some real lock was: the rows must notice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import redis
import sqlalchemy

from bench.proof.peers.locks.adapters.redis_py import RedisPyAsyncLock, RedisPyLock
from segmented.locks.locked_decorator import locked
from segmented.locks.reentrant import AsyncReentrantLock, thread_owner
from tests.support.contract.locks.contenders.elsewhere import SqlRows, Transaction
from tests.support.contract.locks.contenders.ours import OursAsync, OursSync
from tests.support.contract.locks.kinds import handles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.lock import Lock as RedisPyHandle

    from bench.proof.peers.locks.contender import Client, Contender, Handle, Hold, Maybe

KIND: Final = {kind.title: kind for kind in handles()}
LIFE: Final = 60
AN_INSTANT: Final = 0.001


class Ours(OursSync):
    """A sound lock to begin with."""

    def __init__(self) -> None:
        """Be the plain lock on Redis."""
        super().__init__(KIND["Lock"], "redis")


class Plain(RedisPyLock):
    """redis-py's, by a client without retries."""

    def connect(self, urls: Sequence[str]) -> redis.Redis:
        """Retry nothing, so that a closed client ends its waiters."""
        return redis.Redis.from_url(urls[0])

    def close(self, client: redis.Redis) -> None:
        """Cut the lines of those who wait."""
        client.connection_pool.disconnect()


# --- owners and leases ---


class ForgetsOnFailure(Plain):
    """A failed try forgets what the handle holds."""

    def try_acquire(self, handle: RedisPyHandle) -> RedisPyHandle | None:
        """Forget."""
        hold = super().try_acquire(handle)
        if hold is None:
            handle.local.token = None
        return hold


class EndsAtOnce(Plain):
    """A lease without an end is given one of -1 s."""

    def try_acquire(self, handle: RedisPyHandle) -> RedisPyHandle | None:
        """End."""
        hold = super().try_acquire(handle)
        handle.redis.expire(handle.name, -1)
        return hold


class RenewsAnything(Plain):
    """A renewal takes the lock again."""

    def renew(self, hold: RedisPyHandle, ttl: float) -> None:
        """Take."""
        hold.redis.set(hold.name, hold.local.token, px=round(ttl * 1000))


class NeverLetsGo(Ours):
    """A release that leaves the watchdog running."""

    shortest_ttl = (
        2.0  # a watchdog that is late by more than that would let the lease lapse, which looks like a release
    )

    def release(self, hold: Hold) -> None:
        """Do nothing."""


class RenewsNothing(Ours):
    """A watchdog that is asleep."""

    def make_renewing(self, client: Client, name: str, ttl: float) -> Handle:
        """Leave it out."""
        return self.make(client, name, ttl)


class TellsNobody(Ours):
    """A loss that is told to nobody."""

    def watch_loss(self, _: Hold) -> Callable[[], bool]:
        """Say nothing."""
        return lambda: False


# --- waiters ---


class Pushes(Plain):
    """Waits by BLPOP without an end, for one element a release: a dead waiter takes it along."""

    def acquire(self, handle: RedisPyHandle, wait: float) -> RedisPyHandle | None:
        """Wait for ever."""
        del wait
        while self.try_acquire(handle) is None:
            handle.redis.blpop([f"{handle.name}:signal"], 0)
        return handle

    def release(self, hold: RedisPyHandle) -> None:
        """Release, and push."""
        super().release(hold)
        hold.redis.lpush(f"{hold.name}:signal", 1)


class SubscribesTooLate(Pushes):
    """Subscribes after the failed try, and does not try again."""

    offers = RedisPyLock.offers | {"listening"}
    listening = rb"\nSUBSCRIBE\r"

    def acquire(self, handle: RedisPyHandle, wait: float) -> RedisPyHandle | None:
        """Wait for a message that may have been."""
        while self.try_acquire(handle) is None:
            with handle.redis.pubsub() as channel:
                channel.subscribe(f"{handle.name}:freed")
                channel.get_message(timeout=wait)
                if channel.get_message(timeout=wait) is None:
                    return None
        return handle

    def release(self, hold: RedisPyHandle) -> None:
        """Release, and publish."""
        super().release(hold)
        hold.redis.publish(f"{hold.name}:freed", "freed")


class Spins(Plain):
    """Asks again at once, and again."""

    def acquire(self, handle: RedisPyHandle, wait: float) -> RedisPyHandle | None:
        """Spin."""
        end = time.monotonic() + wait
        while time.monotonic() < end:
            if self.try_acquire(handle) is not None:
                return handle
        return None


class Tickets(Pushes):
    """A number for everyone who comes, and a place that nobody gives up."""

    offers = frozenset({"wire", "ttl", "fair"})

    def try_acquire(self, handle: RedisPyHandle) -> RedisPyHandle | None:
        """Draw a number."""
        return self.acquire(handle, 0)

    def acquire(self, handle: RedisPyHandle, wait: float) -> RedisPyHandle | None:
        """Wait until all before are served, or until the time is over."""
        server: Any = handle.redis
        number = server.incr(f"{handle.name}:drawn") - 1
        end = time.monotonic() + wait
        while int(server.get(f"{handle.name}:served") or 0) != number:
            if time.monotonic() >= end:
                return None
            server.blpop([f"{handle.name}:never"], AN_INSTANT)
        return handle

    def release(self, hold: RedisPyHandle) -> None:
        """Call the next number."""
        hold.redis.incr(f"{hold.name}:served")


# --- many servers, many tasks ---


class WantsAll(OursSync):
    """A quorum of all."""

    def __init__(self) -> None:
        """Be the quorum lock."""
        super().__init__(KIND["QuorumLock (3 servers)"], "redis")

    def try_acquire(self, handle: Handle) -> Hold | None:
        """Refuse a lease that one of the servers has not."""
        hold = super().try_acquire(handle)
        for store in [store for stores in self.parts.values() for store in stores]:
            store.client.ping()
        return hold


class IgnoresReplicas(Ours):
    """Asks for acknowledgements, and does not count them."""

    def make_replicated(self, client: Client, name: str, replicas: int) -> Handle:
        """Do not ask at all."""
        del replicas
        return self.make(client, name, LIFE)


class Counts(Ours):
    """A fencing token from a counter."""

    def fencing_token(self, hold: Hold) -> int:
        """Count."""
        token: Any = self.near.client.incr(f"{hold.name}:count")
        return int(token)


class OwnsByThread(OursAsync):
    """A reentrant lock for tasks, owned by their thread."""

    def __init__(self) -> None:
        """Be the reentrant lock."""
        super().__init__(KIND["ReentrantLock"], "redis")

    def make_with(self, client: Client, name: str, options: dict[str, Any]) -> Handle:
        """Take the thread for the owner."""
        return AsyncReentrantLock(client, name, owner=thread_owner, renew=False, **options)


# --- decorators and caches ---


class RunsUnlocked(Ours):
    """Runs the body in any case."""

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Run."""
        return locked(name, store=client, timeout=0, on_busy="run")(function)


class ReleasesNothing(Ours):
    """Takes the lock of a decorated function, and keeps it."""

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Keep."""

        def decorated() -> Maybe:
            self.make(client, name, LIFE).acquire(timeout=0)
            return function()

        return decorated


class LocksTheCall(Ours):
    """Holds the lock while a generator or coroutine is made, not while it runs."""

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Lock the call."""

        def decorated() -> Maybe:
            with self.make(client, name, LIFE).acquire(timeout=0):
                return function()

        return decorated


class ForgetsTheTransaction(Ours):
    """Releases as the body returns."""

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Leave the transaction out."""
        return self.decorate(client, name, function), lambda: None


class LoadsAlways(Ours):
    """A cache without a lock."""

    def guard_cache(self, client: Client, name: str, load: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Load."""
        del client, name
        return load


class Advisory(SqlRows):
    """A lock of the session, taken through a proxy that gives each transaction another session."""

    def acquire(self, handle: Handle, wait: float) -> Transaction | None:
        """Lock the session that happens to be there."""
        del wait
        engine, name = handle
        connection = engine.connect()
        self.begun.append(connection)
        found = connection.scalar(sqlalchemy.text("SELECT pg_try_advisory_lock(hashtext(:name))"), {"name": name})
        connection.commit()
        return Transaction(connection, found) if found else None

    def release(self, hold: Transaction) -> None:
        """Leave it to the session."""
        hold.connection.close()


class ListensOnce(Plain):
    """Listens on one connection for all waits, and waits on when that has died."""

    listener: Any = None

    def acquire(self, handle: RedisPyHandle, wait: float) -> RedisPyHandle | None:
        """Wait for a message that a dead connection never brings."""
        end = time.monotonic() + wait
        if self.listener is None:
            self.listener = handle.redis.connection_pool.make_connection()
            self.listener.connect()
            self.listener.send_command("SUBSCRIBE", f"{handle.name}:freed")
        while self.try_acquire(handle) is None:
            try:
                self.listener.read_response(timeout=max(0.0, end - time.monotonic()), disconnect_on_error=False)
            except redis.RedisError:
                time.sleep(max(0.0, end - time.monotonic()))
                return None
        return handle

    def release(self, hold: RedisPyHandle) -> None:
        """Release, and publish."""
        super().release(hold)
        hold.redis.publish(f"{hold.name}:freed", "freed")


CAUGHT: Final[tuple[tuple[str, Callable[[], Contender]], ...]] = (
    ("A2", RedisPyAsyncLock),
    ("A3", ForgetsOnFailure),
    ("A6", Plain),
    ("A7", RedisPyLock),
    ("A8", RedisPyLock),
    ("A13", RedisPyAsyncLock),
    ("A14", Plain),
    ("B1", EndsAtOnce),
    ("B2", RedisPyLock),
    ("B4", RedisPyLock),
    ("B6", RenewsAnything),
    ("C1", NeverLetsGo),
    ("C2", RenewsNothing),
    ("C3", TellsNobody),
    ("D1", SubscribesTooLate),
    ("D2", Pushes),
    ("D3", Pushes),
    ("D4", Pushes),
    ("D5", Pushes),
    ("D9", Spins),
    ("D11", RedisPyAsyncLock),
    ("D12", Tickets),
    ("D16", Spins),
    ("D17", ListensOnce),
    ("E1", RedisPyLock),
    ("F1", WantsAll),
    ("G1", IgnoresReplicas),
    ("G2", Counts),
    ("H2", OwnsByThread),
    ("I1", RunsUnlocked),
    ("I2", ReleasesNothing),
    ("I3", LocksTheCall),
    ("I4", ForgetsTheTransaction),
    ("J7", LoadsAlways),
)
"""Row -> a lock that fails it."""
