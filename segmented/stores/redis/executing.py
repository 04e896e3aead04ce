"""The part of a store that follows its client: operations on its link, hand-over of releases, a check of servers."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import finalize

import redis
from redis import asyncio as redis_asyncio
from redis.exceptions import RedisError

from segmented.clock import Clock, checked_clock
from segmented.errors import InvalidInput, SegmentedError
from segmented.plans.store_kinds import NotPickled
from segmented.plans.waiting import UNDO_SECONDS
from segmented.protocol.base import has_taken
from segmented.stores.redis.async_listener import AsyncRedisWakeups
from segmented.stores.redis.clients import close_async_client, close_client
from segmented.stores.redis.edge import Translated, check_server, our_error, reading_info
from segmented.stores.redis.linking import async_linked, linked
from segmented.stores.redis.listener import RedisWakeups
from segmented.stores.redis.rights import check_rights, probing_scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Duration
    from segmented.errors import PoolFrozen
    from segmented.plans.line import Offer, Place
    from segmented.protocol import Operation
    from segmented.protocol.wire import Dialect
    from segmented.stores.redis.eviction import Eviction

AnswerT = TypeVar("AnswerT")


def described(dialect: Dialect | None) -> str:
    """Return how the server compares and deletes."""
    return "not connected yet" if dialect is None else f"compare-and-delete by {dialect.value}"


class AsyncExecuting(NotPickled):
    """A store on Redis or Valkey for asyncio, without what makes one."""

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
        # The next waiter of this process does not have to wait for the message, which another one delivers.
        taken: list[Place] = []
        try:
            place = self.wakeups.take_offer(channel, taken)
            if place is None:
                self.wakeups.note_release(holder_id)
                try:
                    with Translated(self._where):
                        return await self._link.perform(operation, deadline=deadline)
                finally:
                    self.wakeups.signal(channel)
            answer = await self._hand_over(operation, taken, channel, holder_id, deadline)
        except SegmentedError:
            raise
        except asyncio.CancelledError:  # asyncio only
            raise
        except BaseException:  # of a signal handler, at any point: also in the middle of what wakes the next waiter
            await self._undo(self.wakeups.recover(channel, holder_id, taken))
            if taken:
                await self._announce(channel, holder_id)
            raise
        # threads: time.sleep(0)  # the waiter goes on first: until it does, nobody works under the lock
        return answer

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


async def async_check_masters(
    client: redis_asyncio.Redis | redis_asyncio.RedisCluster, where: str, eviction: Eviction
) -> None:
    """Raise InvalidInput unless the server, or each master of a cluster, is usable."""
    if isinstance(client, redis_asyncio.RedisCluster):
        await client.initialize()  # asyncio only
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


# --- For threads: written by `make sync` from the classes above. ---


class Executing(NotPickled):
    """A store on Redis or Valkey for threads, without what makes one."""

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
        found = linked(
            client,
            self.clock,
            dialect=dialect,
            patience=patience,
            is_checked=is_checked,
            owns_client=bool(owned_at),
            eviction=eviction,
        )
        self._link, self._where = found.link, owned_at or found.where
        self.wakeups = RedisWakeups(found.subscribe, self.clock, found.link)
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

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation atomically; raises StoreUnavailable if the local time `deadline` passes first."""
        woken = operation.wakes()
        if woken is not None and self.wakeups.is_waited_for(woken[0]) and not self.wakeups.lets_others(woken[0]):
            return self._release(operation, *woken, deadline)
        try:
            return self._link.perform(operation, deadline=deadline)
        except (RedisError, OSError) as error:
            raise our_error(error, self._where) from error

    def _release(self, operation: Operation[AnswerT], channel: str, holder_id: str, deadline: float) -> AnswerT:
        # The next waiter of this process does not have to wait for the message, which another one delivers.
        taken: list[Place] = []
        try:
            place = self.wakeups.take_offer(channel, taken)
            if place is None:
                self.wakeups.note_release(holder_id)
                try:
                    with Translated(self._where):
                        return self._link.perform(operation, deadline=deadline)
                finally:
                    self.wakeups.signal(channel)
            answer = self._hand_over(operation, taken, channel, holder_id, deadline)
        except SegmentedError:
            raise
        except BaseException:  # of a signal handler, at any point: also in the middle of what wakes the next waiter
            self._undo(self.wakeups.recover(channel, holder_id, taken))
            if taken:
                self._announce(channel, holder_id)
            raise
        time.sleep(0)  # the waiter goes on first: until it does, nobody works under the lock
        return answer

    def _hand_over(
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
                answer, attempt = self._link.free(release, offer.attempt, where=self._where, deadline=deadline)
            if not isinstance(attempt, SegmentedError):  # on an error the waiter makes its own attempt
                handed = attempt, asked_at
        finally:
            self._undo(self.wakeups.hand(place, handed, taken))
        if quiet is not None and not has_taken(offer.attempt, attempt):
            self._announce(channel, holder_id, deadline)
        if isinstance(answer, SegmentedError):
            raise answer
        return cast("AnswerT", answer)

    def _announce(self, channel: str, holder_id: str, deadline: float = inf) -> None:
        """Send the message of a release, which may have been a quiet one."""
        with suppress(RedisError, OSError, SegmentedError):
            self._link.publish(channel, holder_id, deadline=deadline)

    def _undo(self, undoing: Sequence[Operation[object]]) -> None:
        """Undo the attempt for a waiter that has left."""
        for undo in undoing:
            with suppress(SegmentedError):  # otherwise the lease of the attempt expires
                self.execute(undo, deadline=self.clock.now() + UNDO_SECONDS)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each.

        If the server is unreachable, every answer is that error; nothing is raised.
        """
        return self._link.perform_all(operations, where=self._where, deadline=deadline)

    def close(self) -> None:
        """Stop listening and close the connections of this store. Its leases are no longer renewed.

        An operation that still runs, or begins later, ends as before; its connection is closed then. A wait that begins
        later is not notified of releases by others, and checks again from time to time.
        """
        self.is_closed = True
        self.wakeups.close()
        self._link.close()
        if self._owns_client:
            close_client(self.client)

    def __enter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Return the server's address without secrets, and how it compares and deletes."""
        return f"RedisStore({self._where}, {described(self._link.dialect)})"


def check_masters(client: redis.Redis | redis.RedisCluster, where: str, eviction: Eviction) -> None:
    """Raise InvalidInput unless the server, or each master of a cluster, is usable."""
    if isinstance(client, redis.RedisCluster):
        for node in client.get_primaries():
            at = f"{where} (node {node.name})"
            with reading_info(at):
                found: Any = client.info(target_nodes=node)
            check_server(at, found, is_cluster=True, eviction=eviction)
            with probing_scripts(at) as commands:
                replies = [client.execute_command(*command, target_nodes=node) for command in commands]
                check_rights(at, replies[0])
    else:
        with reading_info(where):
            found = client.info()
        check_server(where, found, is_cluster=False, eviction=eviction)
        with probing_scripts(where) as commands:
            replies = [client.execute_command(*command) for command in commands]
            check_rights(where, replies[0])
