"""This library's locks as contenders: every kind, in both colours, on Redis and in memory."""

from collections.abc import Callable, Sequence
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
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.quorum import AsyncQuorumStore, QuorumStore
from segmented.stores.quorum.store import DEFAULT_ANSWER_TIMEOUT
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.conformance.locks.contender import Body, Client, Contender, Handle, Hold, Maybe
from tests.support.contract.locks.kinds import Handles, handles
from tests.support.contract.parking import has_come_to_rest

WAIT_INSIDE: Final = 30.0
CONNECTIONS: Final = 64


class Ours(Contender):
    """What both colours share."""

    packages = ("segmented-locks", "redis")
    lost = (LeaseLost,)
    refused = (InvalidInput,)
    listening = rb"\nSUBSCRIBE\r"
    answer_timeout: float = DEFAULT_ANSWER_TIMEOUT
    """Seconds in which each server of a quorum has to answer."""

    def __init__(self, kind: Handles, store: str, protocol: int = 3, *, is_text: bool = False) -> None:
        """Be one kind of lock on one kind of store."""
        self.kind, self.store = kind, store
        self.offers = kind.offers | ({"wire"} if store == "redis" else frozenset())
        self.settings: dict[str, Any] = {
            "protocol": protocol,
            "decode_responses": is_text,
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

    def key(self, name: str) -> str:
        """Return the main key of every kind."""
        return lock_keys(name).lock

    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle."""
        return self.make_with(client, name, {} if ttl is None else {"ttl": ttl})

    def make_rival(self, client: Client, name: str, ttl: float | None) -> Handle:
        """Make a handle of what the lock excludes."""
        options = {} if ttl is None else {"ttl": ttl}
        rival = self._rival()
        return self.make_with(client, name, options) if rival is None else rival(client, name, **options)

    def make_renewing(self, client: Client, name: str, ttl: float) -> Handle:
        """Have it renewed."""
        return self.make_with(client, name, {"ttl": ttl, "renew": True})

    def make_replicated(self, client: Client, name: str, replicas: int) -> Handle:
        """Ask for acknowledgements, and wait for them 50 ms."""
        return self.make_with(client, name, {"replicas": replicas, "replicas_timeout": 0.05})

    def fencing_token(self, hold: Hold) -> int:
        """Return the lease's."""
        return self.kind.token(hold)

    def watch_loss(self, hold: Hold) -> Callable[[], bool]:
        """Look at the lease's event."""
        is_set: Callable[[], bool] = hold.lost.is_set
        return is_set

    def key_life_max_ms(self, ttl_ms: int) -> int:
        """Allow what the kind needs beside the lease."""
        return ttl_ms + self.kind.key_life_ms

    def decorate(self, client: Client, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `locked`."""
        return locked(name, store=client, timeout=0)(function)

    def guard_cache(self, client: Client, name: str, load: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `single_flight`."""
        flight = single_flight(client, keep=60, ttl=3)
        return lambda: flight.get(name, load)

    def rest(self, client: Client, waiters: int) -> bool:
        """Look at the lines of the store."""
        if not self.kind.tells_rest:
            raise NotImplementedError
        return has_come_to_rest(client, waiters)

    def make_with(self, client: Client, name: str, options: dict[str, Any]) -> Handle:
        """Make a handle with these options of its constructor."""
        make = self.kind.asyncio if self.is_async else self.kind.sync
        return make(client, name, **options)

    def _rival(self) -> Callable[..., Handle] | None:
        return self.kind.rival_asyncio if self.is_async else self.kind.rival_sync


class OursSync(Ours):
    """A lock for threads."""

    def connect(self, urls: Sequence[str]) -> Client:
        """Make a store; one of memory is the same for all."""
        if self.store == "memory":
            self.memory = self.memory or MemoryStore()
            made: Any = self.memory
        else:
            stores = [RedisStore(redis.Redis.from_url(url, **self.settings)) for url in urls]
            made = QuorumStore(stores, answer_timeout=self.answer_timeout) if self.servers > 1 else stores[0]
            self.parts[id(made)] = stores
        self.near = self.near or made
        return made

    def close(self, client: Client) -> None:
        """Close it and its client."""
        client.close()
        for part in self.parts.get(id(client), []):
            part.close()
            part.client.close()

    def acquire(self, handle: Handle, wait: float) -> Hold | None:
        """Wait."""
        try:
            hold = handle.acquire(timeout=wait)
        except AcquireTimeout:
            return None
        self.holds.append(hold)
        return hold

    def try_acquire(self, handle: Handle) -> Hold | None:
        """Try."""
        hold = handle.try_acquire()
        self.holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        """Release."""
        hold.release()

    def renew(self, hold: Hold, ttl: float) -> None:
        """Renew."""
        hold.renew(ttl=ttl)

    def run_inside(self, handle: Handle, body: Body) -> None:
        """Use the lease as a context manager."""
        with handle.acquire(timeout=WAIT_INSIDE) as hold:
            body(hold)

    def lapse(self, hold: Hold) -> None:
        """Shorten it by its own renewal, of which the lease hears nothing."""
        for step in self.kind.lapsing(hold):
            self.near.execute(step)

    def take_away(self, hold: Hold) -> None:
        """End it by its own release, of which the lease hears nothing."""
        for step in self.kind.ending(hold):
            self.near.execute(step)

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Use `locked` with a session of SQLAlchemy."""
        session = Session(create_engine("sqlite://", poolclass=NullPool))

        @locked(name, store=client, timeout=0, transaction="session")
        def run(session: Session) -> None:
            session.execute(text("SELECT 1"))
            function()

        return (lambda: run(session)), session.commit


class OursAsync(Ours):
    """A lock for asyncio."""

    is_async = True

    def __init__(self, kind: Handles, store: str, protocol: int = 3, *, is_text: bool = False) -> None:
        """Be one kind of lock on one kind of store; its calls can be cancelled."""
        super().__init__(kind, store, protocol, is_text=is_text)
        self.offers |= {"cancelling"}

    async def connect(self, urls: Sequence[str]) -> Client:
        """Make a store; one of memory is the same for all."""
        if self.store == "memory":
            self.memory = self.memory or AsyncMemoryStore()
            made: Any = self.memory
        else:
            stores = [AsyncRedisStore(redis_asyncio.Redis.from_url(url, **self.settings)) for url in urls]
            made = AsyncQuorumStore(stores, answer_timeout=self.answer_timeout) if self.servers > 1 else stores[0]
            self.parts[id(made)] = stores
        self.near = self.near or made
        return made

    async def close(self, client: Client) -> None:
        """Close it and its client."""
        await client.close()
        for part in self.parts.get(id(client), []):
            await part.close()
            await part.client.aclose()

    async def acquire(self, handle: Handle, wait: float) -> Hold | None:
        """Wait."""
        try:
            hold = await handle.acquire(timeout=wait)
        except AcquireTimeout:
            return None
        self.holds.append(hold)
        return hold

    async def try_acquire(self, handle: Handle) -> Hold | None:
        """Try."""
        hold = await handle.try_acquire()
        self.holds.append(hold)
        return hold

    async def release(self, hold: Hold) -> None:
        """Release."""
        await hold.release()

    async def renew(self, hold: Hold, ttl: float) -> None:
        """Renew."""
        await hold.renew(ttl=ttl)

    async def run_inside(self, handle: Handle, body: Body) -> None:
        """Use the lease as a context manager."""
        async with handle.acquire(timeout=WAIT_INSIDE) as hold:
            ending = body(hold)
            if ending is not None:
                await ending

    async def lapse(self, hold: Hold) -> None:
        """Shorten it by its own renewal, of which the lease hears nothing."""
        for step in self.kind.lapsing(hold):
            await self.near.execute(step)

    async def take_away(self, hold: Hold) -> None:
        """End it by its own release, of which the lease hears nothing."""
        for step in self.kind.ending(hold):
            await self.near.execute(step)

    def decorate_in_transaction(
        self, client: Client, name: str, function: Callable[[], Maybe]
    ) -> tuple[Callable[[], Maybe], Callable[[], Maybe]]:
        """Use `locked` with a session of SQLAlchemy."""
        session = Session(create_engine("sqlite://", poolclass=NullPool))

        @locked(name, store=client, timeout=0, transaction="session")
        async def run(session: Session) -> None:
            session.execute(text("SELECT 1"))
            await function()

        return (lambda: run(session)), session.commit


def _all() -> dict[str, Callable[[], Ours]]:
    found: dict[str, Callable[[], Ours]] = {}

    def add(kind: Handles, made: type[Ours], store: str, protocol: int = 3, *, is_text: bool = False) -> None:
        colour = "asyncio" if made.is_async else "threads"
        dialect = f"-resp{protocol}{'-text' if is_text else ''}" if store == "redis" else ""
        found[f"{kind.title}-{colour}-{store}{dialect}"] = lambda: made(kind, store, protocol, is_text=is_text)

    for kind in handles():
        for store in kind.stores:
            add(kind, OursSync, store, 2)
            add(kind, OursAsync, store, 3, is_text=True)
    return found


CONTENDERS: Final = _all()
"""Name of a contender -> what makes it."""


def make(name: str) -> Ours:
    """Make one by its name."""
    return CONTENDERS[name]()
