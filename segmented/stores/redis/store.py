"""The stores on Redis or Valkey: operations on a link, hand-over of releases, a check of servers."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from weakref import finalize

from redis.exceptions import RedisError

from segmented import events
from segmented.clock import Clock, Duration, checked_clock
from segmented.errors import InvalidInput, PoolFrozen, SegmentedError, StoreError
from segmented.plans.store_kinds import NotPickled
from segmented.plans.waiting import UNDO_SECONDS
from segmented.protocol.base import has_taken
from segmented.stores.redis.addresses import parse_address
from segmented.stores.redis.clients import async_client_of, client_of, close_async_client, close_client, usable_client
from segmented.stores.redis.edge import CONNECT_TIMEOUT, Eviction, Translated, guarded, is_refusal, our_error
from segmented.stores.redis.linking import PATIENCE, async_linked, checked_seconds, linked
from segmented.stores.redis.listener import AsyncRedisWakeups, RedisWakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    from redis import asyncio as redis_asyncio

    from segmented.plans.line import Offer, Place
    from segmented.protocol import Operation
    from segmented.protocol.wire import Dialect

AnswerT = TypeVar("AnswerT")


def described(dialect: Dialect | None) -> str:
    """Return how the server compares and deletes."""
    return "not connected yet" if dialect is None else f"compare-and-delete by {dialect.value}"


class AsyncRedisStore(NotPickled):
    """A store on Redis or Valkey, for asyncio: on one server, behind Sentinels, or on a cluster.

    Pass your own client, or a URL: see `from_url`. It accepts clients of redis-py (RESP2 or RESP3, with or without
    `decode_responses`; one from a Sentinel's `master_for`; a `RedisCluster`) and of valkey-py. The store opens its own
    connections with the client's settings, credentials and TLS, up to the client's `max_connections`, and does its own
    retries and deadlines. An operation is one round trip. Threads can share a store.

    With asyncio a store belongs to one event loop. Another loop may use it once the first one has stopped, as with
    several `asyncio.run`; connections and waits begin again there. While two loops run, the second gets InvalidInput.
    """

    ends_before_cancelled: Final = True  # asyncio only: a cancellation is raised when the operation has ended

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

        Raises InvalidInput for an unusable client or server, as `from_url` does. With asyncio, the server is checked
        before the first operation; with threads now, or then if it does not answer now.

        With a `maxmemory-policy` other than `noeviction` the server may evict keys: the store warns once, and takes no
        pools unless `allow_eviction` (in a URL, `allow_eviction=yes`).

        With a `dialect` the store does not ask the server how to compare and delete. `patience` is how many seconds
        an operation is retried while Sentinels or a cluster replace a master, within the operation's deadline.
        """
        # threads: if isinstance(client, str):
        # threads:     self._connect(client, checked_clock(clock), dialect, patience, allow_eviction=allow_eviction)
        # threads:     return
        where = ""  # asyncio only
        if isinstance(client, str):  # asyncio only
            address = parse_address(client)
            where, allow_eviction = address.shown, allow_eviction or address.allows_eviction
            with guarded(client):
                client = async_client_of(address)
        eviction = Eviction(is_allowed=allow_eviction)
        given = usable_client(client, is_async=True)
        self._start(given, clock, dialect, patience, owned_at=where, eviction=eviction)  # asyncio only
        # threads: self._start(given, clock, dialect, patience, eviction=eviction)
        # threads: try:
        # threads:     with Translated(self._where):
        # threads:         self._link.check(self.clock.now() + CONNECT_TIMEOUT)
        # threads: except StoreError as error:  # an unreachable server is checked before the first operation
        # threads:     if is_refusal(error):
        # threads:         raise InvalidInput(str(error)) from error

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
        """Connect and check the server, or every master of a cluster.

        Raises InvalidInput if it is not usable, StoreUnavailable if it does not answer.

        `redis://`, `rediss://` and `unix://` name one server, `redis+sentinel://HOST:PORT,.../SERVICE` a master behind
        its Sentinels, `redis+cluster://HOST:PORT,...` a cluster; `rediss+...` uses TLS. `timeout` is how many seconds
        this first contact may take; without one, each of two tries may take five.
        """
        store = cls.__new__(cls)
        await store._connect(url, checked_clock(clock), dialect, patience, timeout)  # noqa: SLF001  # the second constructor
        return store

    # threads: @classmethod
    # threads: def unchecked(cls, client: redis.Redis | redis.RedisCluster) -> RedisStore:
    # threads:     """Use `client`; the first operation checks the server, within its own deadline."""
    # threads:     store = cls.__new__(cls)
    # threads:     usable = usable_client(client, is_async=False)
    # threads:     cls._start(store, usable, None, None, PATIENCE, eviction=Eviction())
    # threads:     return store

    async def _connect(
        self,
        url: str,
        clock: Clock,
        dialect: Dialect | None,
        patience: Duration,
        timeout: Duration | None = None,
        *,
        allow_eviction: bool = False,
    ) -> None:
        seconds = None if timeout is None else checked_seconds(timeout, "timeout")
        patience = checked_seconds(patience, "patience")
        address = parse_address(url)
        eviction = Eviction(is_allowed=allow_eviction or address.allows_eviction)
        with guarded(url):
            client = async_client_of(address)
            self._start(client, clock, dialect, patience, owned_at=address.shown, eviction=eviction)
            try:
                async with asyncio.timeout(seconds):  # asyncio only
                    await self._link.check(inf if seconds is None else clock.now() + seconds)
                # threads: self._link.check(inf if seconds is None else clock.now() + seconds)
            except TimeoutError as error:  # asyncio only
                await self.close()
                raise TimeoutError(f"it did not answer {f'within {seconds:g} s' if seconds else 'in time'}") from error
            except BaseException:
                await self.close()
                raise

    def _start(
        self,
        client: Any,  # noqa: ANN401  # a client of redis-py
        clock: Clock | None,
        dialect: Dialect | None,
        patience: Duration,
        *,
        owned_at: str = "",
        eviction: Eviction,
    ) -> None:
        """Create the link; the store closes a client of its own, for the servers `owned_at`."""
        self.client = client
        self.clock = checked_clock(clock)
        link, subscribe, self._where = async_linked(
            client, self.clock, dialect=dialect, patience=patience, owned_at=owned_at, eviction=eviction
        )
        self._link = link
        if events.is_on():
            from segmented.stores.observed import AsyncObservedLink  # noqa: PLC0415  # only for those who listen

            self._link = cast("Any", AsyncObservedLink(self._link))
        self.wakeups = AsyncRedisWakeups(subscribe, self.clock, link)
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
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        """Return the server's address without secrets, and how it compares and deletes."""
        return f"AsyncRedisStore({self._where}, {described(self._link.dialect)})"


# --- For threads: written by `make sync` from the classes above. ---


class RedisStore(NotPickled):
    """A store on Redis or Valkey, for threads: on one server, behind Sentinels, or on a cluster.

    Pass your own client, or a URL: see `from_url`. It accepts clients of redis-py (RESP2 or RESP3, with or without
    `decode_responses`; one from a Sentinel's `master_for`; a `RedisCluster`) and of valkey-py. The store opens its own
    connections with the client's settings, credentials and TLS, up to the client's `max_connections`, and does its own
    retries and deadlines. An operation is one round trip. Threads can share a store.

    With asyncio a store belongs to one event loop. Another loop may use it once the first one has stopped, as with
    several `asyncio.run`; connections and waits begin again there. While two loops run, the second gets InvalidInput.
    """

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster | str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        allow_eviction: bool = False,
    ) -> None:
        """Use `client`, which the caller closes; or connect to a URL, as `from_url` does.

        Raises InvalidInput for an unusable client or server, as `from_url` does. With asyncio, the server is checked
        before the first operation; with threads now, or then if it does not answer now.

        With a `maxmemory-policy` other than `noeviction` the server may evict keys: the store warns once, and takes no
        pools unless `allow_eviction` (in a URL, `allow_eviction=yes`).

        With a `dialect` the store does not ask the server how to compare and delete. `patience` is how many seconds
        an operation is retried while Sentinels or a cluster replace a master, within the operation's deadline.
        """
        if isinstance(client, str):
            self._connect(client, checked_clock(clock), dialect, patience, allow_eviction=allow_eviction)
            return
        eviction = Eviction(is_allowed=allow_eviction)
        given = usable_client(client, is_async=False)
        self._start(given, clock, dialect, patience, eviction=eviction)
        try:
            with Translated(self._where):
                self._link.check(self.clock.now() + CONNECT_TIMEOUT)
        except StoreError as error:  # an unreachable server is checked before the first operation
            if is_refusal(error):
                raise InvalidInput(str(error)) from error

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        timeout: Duration | None = None,
    ) -> RedisStore:
        """Connect and check the server, or every master of a cluster.

        Raises InvalidInput if it is not usable, StoreUnavailable if it does not answer.

        `redis://`, `rediss://` and `unix://` name one server, `redis+sentinel://HOST:PORT,.../SERVICE` a master behind
        its Sentinels, `redis+cluster://HOST:PORT,...` a cluster; `rediss+...` uses TLS. `timeout` is how many seconds
        this first contact may take; without one, each of two tries may take five.
        """
        store = cls.__new__(cls)
        store._connect(url, checked_clock(clock), dialect, patience, timeout)  # noqa: SLF001  # the second constructor
        return store

    @classmethod
    def unchecked(cls, client: redis.Redis | redis.RedisCluster) -> RedisStore:
        """Use `client`; the first operation checks the server, within its own deadline."""
        store = cls.__new__(cls)
        usable = usable_client(client, is_async=False)
        cls._start(store, usable, None, None, PATIENCE, eviction=Eviction())
        return store

    def _connect(
        self,
        url: str,
        clock: Clock,
        dialect: Dialect | None,
        patience: Duration,
        timeout: Duration | None = None,
        *,
        allow_eviction: bool = False,
    ) -> None:
        seconds = None if timeout is None else checked_seconds(timeout, "timeout")
        patience = checked_seconds(patience, "patience")
        address = parse_address(url)
        eviction = Eviction(is_allowed=allow_eviction or address.allows_eviction)
        with guarded(url):
            client = client_of(address)
            self._start(client, clock, dialect, patience, owned_at=address.shown, eviction=eviction)
            try:
                self._link.check(inf if seconds is None else clock.now() + seconds)
            except BaseException:
                self.close()
                raise

    def _start(
        self,
        client: Any,  # noqa: ANN401  # a client of redis-py
        clock: Clock | None,
        dialect: Dialect | None,
        patience: Duration,
        *,
        owned_at: str = "",
        eviction: Eviction,
    ) -> None:
        """Create the link; the store closes a client of its own, for the servers `owned_at`."""
        self.client = client
        self.clock = checked_clock(clock)
        link, subscribe, self._where = linked(
            client, self.clock, dialect=dialect, patience=patience, owned_at=owned_at, eviction=eviction
        )
        self._link = link
        if events.is_on():
            from segmented.stores.observed import ObservedLink  # noqa: PLC0415  # only for those who listen

            self._link = cast("Any", ObservedLink(self._link))
        self.wakeups = RedisWakeups(subscribe, self.clock, link)
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
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return the server's address without secrets, and how it compares and deletes."""
        return f"RedisStore({self._where}, {described(self._link.dialect)})"
