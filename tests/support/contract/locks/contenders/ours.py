"""This library's locks as contenders: every kind, in both colours, on Redis and in memory."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import redis
from redis import asyncio as redis_asyncio
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost
from segmented.keys import lock_keys
from segmented.locks.flights import single_flight
from segmented.locks.locked_decorator import locked
from segmented.protocol import Operation
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.quorum import DEFAULT_ANSWER_TIMEOUT, AsyncQuorumStore, QuorumStore
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.conformance.locks.contender import Body, Client, Contender, Handle, Hold, Maybe
from tests.support.contract.locks.kinds import HANDLES, Handles
from tests.support.contract.parking import has_come_to_rest

WAIT_INSIDE: Final = 30.0
CONNECTIONS: Final = 64


class Ours(Contender):
    """A lock of this library, for threads or for asyncio: there, what a method returns is awaited."""

    packages = ("segmented-locks", "redis")
    lost = (LeaseLost,)
    refused = (InvalidInput,)
    listening = rb"\nSUBSCRIBE\r"
    answer_timeout: float = DEFAULT_ANSWER_TIMEOUT
    """Seconds in which each server of a quorum has to answer."""

    def __init__(self, kind: Handles, store: str, *, is_async: bool) -> None:
        """Be one kind of lock on one kind of store; a call can be cancelled in asyncio."""
        self.kind, self.store, self.is_async = kind, store, is_async
        self.offers = kind.offers | ({"wire"} if store == "redis" else frozenset())
        self.offers |= {"cancelling"} if is_async else frozenset()
        self.settings: dict[str, Any] = {
            "protocol": 3 if is_async else 2,
            "decode_responses": is_async,
            "max_connections": CONNECTIONS,
        }
        self.memory: Any = None
        self.near: Any = None
        self.parts: dict[int, list[Any]] = {}
        """By the client: the stores of the single servers that it is made of."""
        self.holds: list[Hold | None] = []
        """A row drops a lease for a holder that died, and a dropped lease would be released."""
        self.title = kind.title
        self.servers, self.names, self.key_lapses = kind.servers, kind.names, kind.key_lapses

    def connect(self, urls: Sequence[str]) -> Client:
        """Make a store; one of memory is the same for all."""
        if self.store == "memory":
            self.memory = self.memory or (AsyncMemoryStore() if self.is_async else MemoryStore())
            made: Any = self.memory
        elif self.is_async:
            parts = [AsyncRedisStore(redis_asyncio.Redis.from_url(url, **self.settings)) for url in urls]
            made = AsyncQuorumStore(parts, answer_timeout=self.answer_timeout) if self.servers > 1 else parts[0]
            self.parts[id(made)] = parts
        else:
            stores = [RedisStore(redis.Redis.from_url(url, **self.settings)) for url in urls]
            made = QuorumStore(stores, answer_timeout=self.answer_timeout) if self.servers > 1 else stores[0]
            self.parts[id(made)] = stores
        self.near = self.near or made
        return made

    def close(self, client: Client) -> Maybe:
        """Close it and its client."""
        parts = self.parts.get(id(client), [])
        closing = (store.close for store in (client, *parts))
        if self.is_async:
            return in_turn(*closing, *(part.client.aclose for part in parts))
        for close in (*closing, *(part.client.close for part in parts)):
            close()
        return None

    def key(self, name: str) -> str:
        """Return the main key of every kind."""
        return lock_keys(name).lock

    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle."""
        return self.make_with(client, name, {} if ttl is None else {"ttl": ttl})

    def make_rival(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle of what the lock excludes."""
        options = {} if ttl is None else {"ttl": ttl}
        rival = self.kind.rival_asyncio if self.is_async else self.kind.rival_sync
        return self.make_with(client, name, options) if rival is None else rival(client, name, **options)

    def make_renewing(self, client: Client, name: str, ttl: float) -> Handle:
        """Have it renewed."""
        return self.make_with(client, name, {"ttl": ttl, "renew": True})

    def make_replicated(self, client: Client, name: str, replicas: int) -> Handle:
        """Ask for acknowledgements, and wait for them 50 ms."""
        return self.make_with(client, name, {"replicas": replicas, "replicas_timeout": 0.05})

    def make_with(self, client: Client, name: str, options: dict[str, Any]) -> Handle:
        """Make a handle with these options of its constructor."""
        make = self.kind.asyncio if self.is_async else self.kind.sync
        return make(client, name, **options)

    def acquire(self, handle: Handle, wait: float) -> Maybe:
        """Wait."""
        if self.is_async:
            return self._awaited(handle.acquire(timeout=wait))
        try:
            return self._kept(handle.acquire(timeout=wait))
        except AcquireTimeout:
            return None

    def try_acquire(self, handle: Handle) -> Maybe:
        """Try."""
        return self._awaited(handle.try_acquire()) if self.is_async else self._kept(handle.try_acquire())

    async def _awaited(self, acquiring: Maybe) -> Hold | None:
        try:
            return self._kept(await acquiring)
        except AcquireTimeout:
            return None

    def _kept(self, hold: Hold | None) -> Hold | None:
        self.holds.append(hold)
        return hold

    def release(self, hold: Hold) -> Maybe:
        """Release."""
        return hold.release()

    def renew(self, hold: Hold, ttl: float) -> Maybe:
        """Renew."""
        return hold.renew(ttl=ttl)

    def fencing_token(self, hold: Hold) -> int:
        """Return the lease's."""
        return self.kind.token(hold)

    def run_inside(self, handle: Handle, body: Body) -> Maybe:
        """Use the lease as a context manager."""
        if self.is_async:
            return self._run_inside_async(handle, body)
        with handle.acquire(timeout=WAIT_INSIDE) as hold:
            body(hold)
        return None

    async def _run_inside_async(self, handle: Handle, body: Body) -> None:
        async with handle.acquire(timeout=WAIT_INSIDE) as hold:
            ending = body(hold)
            if ending is not None:
                await ending

    def watch_loss(self, hold: Hold) -> Callable[[], bool]:
        """Look at the lease's event."""
        is_set: Callable[[], bool] = hold.lost.is_set
        return is_set

    def lapse(self, hold: Hold) -> Maybe:
        """Shorten it by its own renewal, of which the lease hears nothing."""
        return self._execute(self.kind.lapsing(hold))

    def take_away(self, hold: Hold) -> Maybe:
        """End it by its own release, of which the lease hears nothing."""
        return self._execute(self.kind.ending(hold))

    def _execute(self, steps: Sequence[Operation[Any]]) -> Maybe:
        if self.is_async:
            return in_turn(*(partial(self.near.execute, step) for step in steps))
        for step in steps:
            self.near.execute(step)
        return None

    def rest(self, client: Client, waiters: int) -> bool:
        """Look at the lines of the store."""
        if not self.kind.tells_rest:
            raise NotImplementedError
        return has_come_to_rest(client, waiters)

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `locked`."""
        return locked(name, store=client, timeout=0)(function)

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Use `locked` with a session of SQLAlchemy."""
        session = Session(create_engine("sqlite://", poolclass=NullPool))
        decorate = locked(name, store=client, timeout=0, transaction="session")

        def run(session: Session) -> Maybe:
            session.execute(text("SELECT 1"))
            return function()

        async def run_async(session: Session) -> None:
            await run(session)

        decorated: Callable[[Session], Maybe] = decorate(run_async if self.is_async else run)
        return (lambda: decorated(session)), session.commit

    def guard_cache(self, client: Client, name: str, load: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `single_flight`."""
        flight = single_flight(client, keep=60, ttl=3)
        return lambda: flight.get(name, load)


async def in_turn(*calls: Callable[[], Awaitable[object]]) -> None:
    """Make calls one after the other."""
    for call in calls:
        await call()


def _all() -> dict[str, Callable[[], Ours]]:
    found: dict[str, Callable[[], Ours]] = {}
    for kind in HANDLES:
        for store in kind.stores:
            for is_async, colour, dialect in ((False, "threads", "-resp2"), (True, "asyncio", "-resp3-text")):
                name = f"{kind.title}-{colour}-{store}{dialect if store == 'redis' else ''}"
                found[name] = partial(Ours, kind, store, is_async=is_async)
    return found


CONTENDERS: Final = _all()
"""Name of a contender -> what makes it."""


def make(name: str) -> Ours:
    """Make one by its name."""
    return CONTENDERS[name]()
