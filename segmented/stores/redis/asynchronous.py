"""The store for asyncio: the same exchanges over redis-py's asyncio client."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from weakref import finalize

from redis import asyncio as redis_asyncio
from redis.exceptions import RedisError

from segmented.clock import Clock, checked_clock
from segmented.errors import InvalidInput, SegmentedError
from segmented.plans.store_kinds import NotPickled
from segmented.plans.waiting import UNDO_SECONDS
from segmented.protocol.base import has_taken
from segmented.stores.redis.addresses import parse_address
from segmented.stores.redis.async_listener import AsyncRedisWakeups
from segmented.stores.redis.clients import async_client, close_async_client
from segmented.stores.redis.edge import Translated, check_server, guarded, our_error, reading_info
from segmented.stores.redis.eviction import Eviction
from segmented.stores.redis.given_clients import usable_client
from segmented.stores.redis.linking import PATIENCE, async_linked, checked_seconds
from segmented.stores.redis.rights import check_rights, probing_scripts
from segmented.stores.redis.store import described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Duration
    from segmented.errors import PoolFrozen
    from segmented.plans.line import Offer, Place
    from segmented.protocol import Operation
    from segmented.protocol.wire import Dialect

AnswerT = TypeVar("AnswerT")


class AsyncRedisStore(NotPickled):
    """Operations on Redis or Valkey for one event loop, one round trip each; otherwise as `RedisStore`.

    Another loop may use the store once the first one has stopped, as with several `asyncio.run`; connections and waits
    begin again there. While two loops are running, the second gets InvalidInput.
    """

    ends_before_cancelled: Final = True
    """If a task is cancelled during an operation, the cancellation is raised when the operation has ended."""

    def __init__(
        self,
        client: redis_asyncio.Redis | redis_asyncio.RedisCluster | str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        allow_eviction: bool = False,
    ) -> None:
        """Use `client`, which the caller closes; or connect to a URL, as `from_url` does.

        `dialect`, `patience` and `allow_eviction` are as in `RedisStore`. The server is checked before the first
        operation, which raises InvalidInput if the server is not usable, and StoreUnavailable if it does not answer.
        `await AsyncRedisStore.from_url(url)` checks it at once.
        """
        where, allowed = "", allow_eviction
        if isinstance(client, str):
            address = parse_address(client)
            where, allowed = address.shown, allowed or address.allows_eviction
            with guarded(client):
                client = async_client(address)
        eviction = Eviction(is_allowed=allowed)
        self._start(usable_client(client, is_async=True), clock, dialect, patience, owned_at=where, eviction=eviction)

    def _start(
        self,
        client: Any,  # noqa: ANN401  # a client of redis-py
        clock: Clock | None,
        dialect: Dialect | None,
        patience: Duration,
        *,
        owned_at: str = "",
        is_checked: bool = False,
        eviction: Eviction,
    ) -> None:
        """Create the link; the store closes a client of its own, for the servers `owned_at`."""
        self.client = client
        self.clock = checked_clock(clock)
        found = async_linked(
            client,
            self.clock,
            dialect=dialect,
            patience=patience,
            is_checked=is_checked,
            owns_client=bool(owned_at),
            eviction=eviction,
        )
        self._link, self._where = found.link, owned_at or found.where
        self.wakeups = AsyncRedisWakeups(found.subscribe, self.clock, found.link)
        finalize(self, self.wakeups.close_soon).atexit = False  # a dropped store leaves nobody listening
        self._owns_client = bool(owned_at)
        self.is_closed = False

    @property
    def on_frozen(self) -> Callable[[PoolFrozen], None] | None:
        """A function to call once for each pool that is found to have lost changes, in the thread that found it."""
        return self._link.seen.on_frozen

    @on_frozen.setter
    def on_frozen(self, hook: Callable[[PoolFrozen], None] | None) -> None:
        self._link.seen.on_frozen = hook

    def require_pools(self) -> None:
        """Raise InvalidInput if the store takes no pools, because a server that it has met may evict keys."""
        if self._link.seen.eviction.refusal:
            raise InvalidInput(self._link.seen.eviction.refusal)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        timeout: Duration | None = None,
    ) -> AsyncRedisStore:
        """Connect and check the server, or every master of a cluster, as `RedisStore.from_url` does."""
        time_source = checked_clock(clock)
        seconds = None if timeout is None else checked_seconds(timeout, "timeout")
        address = parse_address(url)
        eviction = Eviction(is_allowed=address.allows_eviction)
        with guarded(url):
            client = async_client(address)
            try:
                async with asyncio.timeout(seconds):
                    await _check(client, address.shown, eviction)
            except TimeoutError as error:
                await close_async_client(client)
                message = f"it did not answer within {seconds:g} s"
                raise TimeoutError(message) from error
            except BaseException:
                await close_async_client(client)
                raise
        store = cls.__new__(cls)
        at = address.shown
        store._start(  # noqa: SLF001  # the second constructor
            client, time_source, dialect, patience, owned_at=at, is_checked=True, eviction=eviction
        )
        return store

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation atomically; raises StoreUnavailable if the local time `deadline` passes first."""
        woken = operation.wakes()
        if woken is not None and self.wakeups.is_waited_for(woken[0]) and not self.wakeups.lets_others(woken[0]):
            return await self._release(operation, *woken, deadline)
        try:
            return await self._link.perform(operation, deadline=deadline)
        except (RedisError, OSError) as error:
            raise our_error(error, self._where) from error

    async def _release(self, operation: Operation[AnswerT], channel: str, holder_id: str, deadline: float) -> AnswerT:
        # The next waiter of this process does not have to wait for the message, which another task delivers.
        taken: list[Place] = []
        try:
            place = self.wakeups.take_offer(channel, taken)
            if place is not None:
                return await self._hand_over(operation, taken, channel, holder_id, deadline)
            self.wakeups.note_release(holder_id)
            try:
                with Translated(self._where):
                    return await self._link.perform(operation, deadline=deadline)
            finally:
                self.wakeups.signal(channel)
        except (SegmentedError, asyncio.CancelledError):
            raise
        except BaseException:  # of a signal handler, at any point: also in the middle of what wakes the next waiter
            await self._undo(self.wakeups.recover(channel, holder_id, taken))
            if taken:
                await self._announce(channel, holder_id)
            raise

    async def _hand_over(
        self, operation: Operation[AnswerT], taken: list[Place], channel: str, holder_id: str, deadline: float
    ) -> AnswerT:
        """Release, and then make the attempt of the next waiter; waiters of other processes are not woken in vain."""
        (place,) = taken
        offer, asked_at = cast("Offer", place.offer), self.clock.now()
        handed: tuple[object, float] | None = None
        quiet = operation.quietly()
        if quiet is None:
            self.wakeups.note_release(holder_id)
        release = operation if quiet is None else quiet
        try:
            with Translated(self._where):
                answer, attempt = await self._link.free(release, offer.attempt, where=self._where, deadline=deadline)
            if not isinstance(attempt, SegmentedError):  # on an error the waiter makes its own attempt
                handed = attempt, asked_at
        finally:
            await self._undo(self.wakeups.hand(place, handed, taken))
        if quiet is not None and not has_taken(offer.attempt, attempt):
            await self._announce(channel, holder_id, deadline)
        if isinstance(answer, SegmentedError):
            raise answer
        return cast("AnswerT", answer)

    async def _announce(self, channel: str, holder_id: str, deadline: float = inf) -> None:
        """Send the message of a release, which may have been a quiet one."""
        with suppress(RedisError, OSError, SegmentedError):
            await self._link.publish(channel, holder_id, deadline=deadline)

    async def _undo(self, undoing: Sequence[Operation[object]]) -> None:
        """Undo the attempt for a waiter that has left."""
        for undo in undoing:
            with suppress(SegmentedError):  # otherwise the lease of the attempt expires
                await self.execute(undo, deadline=self.clock.now() + UNDO_SECONDS)

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each.

        If the server is unreachable, every answer is that error; nothing is raised.
        """
        return await self._link.perform_all(operations, where=self._where, deadline=deadline)

    async def close(self) -> None:
        """Stop listening and close the connections of this store. Its leases are no longer renewed.

        An operation that still runs, or begins later, ends as before; its connection is closed then. A wait that begins
        later is not notified of releases by others, and checks again from time to time.
        """
        self.is_closed = True
        await self.wakeups.close()
        await self._link.close()
        if self._owns_client:
            await close_async_client(self.client)

    async def __aenter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def __repr__(self) -> str:
        """Return the server's address without secrets, and how it compares and deletes."""
        return f"AsyncRedisStore({self._where}, {described(self._link.dialect)})"


async def _check(client: redis_asyncio.Redis | redis_asyncio.RedisCluster, where: str, eviction: Eviction) -> None:
    if isinstance(client, redis_asyncio.RedisCluster):
        await client.initialize()
        for node in client.get_primaries():
            at = f"{where} (node {node.name})"
            with reading_info(at):
                found: Any = await client.info(target_nodes=node)
            check_server(at, found, is_cluster=True, eviction=eviction)
            with probing_scripts(at) as commands:
                replies = [await client.execute_command(*command, target_nodes=node) for command in commands]
                check_rights(at, replies[0])
    else:
        with reading_info(where):
            found = await client.info()
        check_server(where, found, is_cluster=False, eviction=eviction)
        with probing_scripts(where) as commands:
            replies = [await client.execute_command(*command) for command in commands]
            check_rights(where, replies[0])
