"""The link of a store to a cluster: one link per node, and the way of each request between them.

The nodes' connections have the settings, credentials and TLS of the client's own nodes. This module keeps the map of
the slots (`cluster_map`) itself instead of using the client's, so that deadlines hold while nodes are unreachable.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.cluster import ClusterNode
from redis.exceptions import RedisError, ResponseError

from segmented.errors import SegmentedError, StoreBusy
from segmented.plans.tasks import OfOneLoop, begun, to_the_end
from segmented.process import Guard
from segmented.protocol.base import Release
from segmented.protocol.wire import PUBLISH, SHARDED, Dialect, MakeExchange
from segmented.stores.redis.addresses import Deployment, Host
from segmented.stores.redis.batches import BATCH_MAX, PUBLISH_SECONDS, perform_all
from segmented.stores.redis.cluster_map import (
    Attempts,
    ClusterMap,
    Look,
    Rest,
    Visit,
    may_have_moved,
    node_named,
    part_of,
    perform_again,
    reading_slots,
    remapped,
    seeds_of,
    shares,
    slot_for,
    slot_of,
    way,
)
from segmented.stores.redis.connections import Connections, ServerCheck, connections_like, connections_of, publishing
from segmented.stores.redis.edge import Translated, our_error
from segmented.stores.redis.exchange import CALLS, Seen, perform_one
from segmented.stores.redis.link import AsyncLink, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    import redis
    from redis import asyncio as redis_asyncio
    from redis.asyncio.client import PubSub as AsyncPubSub
    from redis.client import PubSub

    from segmented.clock import Clock
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

LOOK_SECONDS: Final = 1.0
"""Seconds for one node to report the map; after that the next node is asked."""


class AsyncClusterLink(OfOneLoop):
    """Links to the nodes of a cluster, created on demand."""

    def __init__(
        self,
        client: redis_asyncio.RedisCluster,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        where: str,
    ) -> None:
        """Create a link that does not connect yet. If no master serves a slot, it retries for up to `patience` seconds.

        It checks each node before the node's first operation, as a node of the cluster at `where`, if that is given.
        """
        self._client: Any = client
        self._where = where
        self.seen = Seen()
        self._clock = clock
        self._wanted = dialect
        self._patience = patience
        self._links: dict[Host, AsyncLink] = {}
        # threads: self._nodes: dict[Host, Any] = {}
        # threads: self._looking = Guard()
        self._is_closed = False
        self.map = ClusterMap(seeds_of(client), remap=partial(remapped, client))
        self._start_anew()  # asyncio only

    def _start_anew(self) -> None:  # asyncio only
        self._looking = asyncio.Lock()

    @property
    def dialect(self) -> Dialect | None:
        """How the first node that was asked compares and deletes; each other node is asked separately."""
        return next((link.dialect for link in list(self._links.values()) if link.dialect is not None), self._wanted)

    async def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation on the node that serves its keys."""
        exchange = partial(perform_one, operation, self.seen, next(CALLS))
        # threads: return self._run(exchange, slot_for(operation), deadline)
        is_release = isinstance(operation, Release)  # asyncio only
        run = partial(self._run, exchange, slot_for(operation), deadline, is_release=is_release)  # asyncio only
        return await (to_the_end(run) if is_release else run())  # asyncio only

    async def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip to a node; one answer each.

        With asyncio the nodes work in parallel, each of them on one batch after the other.
        """
        answers: dict[int, AnswerT | SegmentedError] = {}
        numbers = [next(CALLS) for _ in operations]
        unsure: set[int] = set()  # may have run: the replies were lost
        is_release = any(isinstance(one, Release) for one in operations)  # asyncio only
        give_up = min(deadline, self._clock.now() + self._patience)
        divided = shares(self.map, operations, size_max=BATCH_MAX)

        async def ask(slot: int, places: list[int], until: float) -> None:
            batch = [operations[place] for place in places]
            exchange = partial(perform_all, batch, where, self.seen, [numbers[place] for place in places])
            found: list[Any]
            try:
                found = await self._run(exchange, slot, until, is_release=is_release)
            except SegmentedError as error:
                found = [error] * len(batch)
                unsure.update(() if isinstance(error, StoreBusy) else places)
            except (RedisError, OSError) as error:
                found = [our_error(error, where)] * len(batch)
                unsure.update(() if isinstance(error, ResponseError) else places)
            answers.update(zip(places, found, strict=True))

        # threads: for left, (slot, places) in zip(range(len(divided), 0, -1), divided, strict=True):
        # threads:     ask(slot, places, part_of(deadline, left, now=self._clock.now()))
        await self._each_node(divided, lambda slot, places: ask(slot, places, deadline))  # asyncio only
        for place, operation in enumerate(operations):
            if may_have_moved(answers[place]) and self._clock.now() < give_up:
                performing = perform_again if place in unsure else perform_one
                trying = partial(performing, operation, self.seen, numbers[place])
                answers[place] = await self._performed(trying, slot_for(operation), where, give_up)
        return [answers[place] for place in range(len(operations))]

    async def _each_node(  # asyncio only
        self, divided: list[tuple[int, list[int]]], ask: Callable[[int, list[int]], Coroutine[Any, Any, None]]
    ) -> None:
        by_node: dict[Host | None, list[tuple[int, list[int]]]] = defaultdict(list)
        for slot, places in divided:
            by_node[self.map.owner(slot)].append((slot, places))

        async def ask_one(batches: list[tuple[int, list[int]]]) -> None:
            for slot, places in batches:
                await ask(slot, places)

        if len(by_node) == 1:
            await ask_one(*by_node.values())
        else:
            async with asyncio.TaskGroup() as nodes:
                for batches in by_node.values():
                    nodes.create_task(begun(partial(ask_one, batches)))

    async def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt on the same keys; one answer or error each."""
        return await self.perform_all((operation, behind), where=where, deadline=deadline)

    async def _performed(
        self, make_exchange: MakeExchange[AnswerT], slot: int, where: str, deadline: float
    ) -> AnswerT | SegmentedError:
        try:
            with Translated(where):
                return await self._run(make_exchange, slot, deadline)
        except SegmentedError as error:
            return error

    async def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:
        """Return the node that serves the slot of each channel, where its messages are published.

        The map is read again if the node `apart_from` has just failed or has lost a slot.
        """
        if apart_from is not None:
            with suppress(SegmentedError):  # the map stays; the node that it names redirects, or fails again
                await self._look(Look(self.map.version, apart_from), self._clock.now() + self._patience)
        known = self.map
        return {channel: known.owner(slot_of(channel)) or known.hosts()[0] for channel in channels}

    async def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:
        """Send a message within a short time or not at all: to the node of the channel's slot, or by way of `at`."""
        until = min(deadline, self._clock.now() + PUBLISH_SECONDS)
        if at is None:
            await self._run(partial(publishing, SHARDED, channel, word), slot_of(channel), until)
        else:
            await self._link(at).run(partial(publishing, PUBLISH, channel, word), deadline=until)

    def subscription(self, home: Host | None) -> AsyncPubSub:
        """Return a subscription at a node. It does not reconnect, because the next one may be at another node."""
        return self._connections(home or self.map.hosts()[0]).async_subscription(retries=0)

    async def check(self, deadline: float) -> None:
        """Check every master that the client knows."""
        await self._client.initialize()  # asyncio only
        for node in self._client.get_primaries():
            await self._link(Host(node.host, int(node.port))).check(deadline)

    async def close(self) -> None:
        """Disconnect all wires for good. It waits for the sockets of the unused ones."""
        self._is_closed = True
        await asyncio.gather(*(begun(link.close) for link in list(self._links.values())))  # asyncio only
        # threads: for link in list(self._links.values()):
        # threads:     link.close()
        # threads: for node in list(self._nodes.values()):  # the client does not know them
        # threads:     if node.redis_connection is not None:
        # threads:         node.redis_connection.close()

    async def _run(
        self, make_exchange: MakeExchange[AnswerT], slot: int, deadline: float, *, is_release: bool = False
    ) -> AnswerT:
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        going = way(self.map, slot)
        step = next(going)
        while True:
            match step:
                case Visit(host, is_asking):
                    make = attempts.asking if is_asking else attempts.direct
                    try:
                        return await self._link(host).run(make, deadline=deadline, is_release=is_release)
                    except (RedisError, OSError) as error:
                        attempts.failed(error)
                        step = going.throw(error)
                case Look():
                    await self._look(step, give_up)
                    step = next(going)
                case Rest(seconds, error):
                    if self._clock.now() + seconds >= give_up:
                        raise error
                    await asyncio.sleep(seconds)
                    step = next(going)

    async def _look(self, look: Look, give_up: float) -> None:
        """Read the map, unless another task or thread has read it meanwhile."""
        self._enter_loop()  # asyncio only
        async with self._looking:  # asyncio only
            await self._read_map(look, give_up)
        # threads: looking = self._looking.lock
        # threads: is_ours = looking.acquire(timeout=max(0.0, min(LOOK_SECONDS, give_up - self._clock.now())))
        # threads: try:
        # threads:     self._read_map(look, give_up)
        # threads: finally:
        # threads:     if is_ours:
        # threads:         looking.release()

    async def _read_map(self, look: Look, give_up: float) -> None:
        """Read the map from the first node that answers."""
        for host in self.map.hosts(last=look.apart_from):
            now = self._clock.now()
            if self.map.version != look.version or now >= give_up:
                return
            try:
                rows = await self._link(host).run(reading_slots, deadline=min(give_up, now + LOOK_SECONDS))
            except (RedisError, OSError):
                continue
            self.map.replace(rows, asked=host)

    def _link(self, host: Host) -> AsyncLink:
        link = self._links.get(host)
        if link is None:
            check = ServerCheck(node_named(host, self._where), self.seen.eviction, Deployment.CLUSTER)
            made = AsyncLink(self._connections(host), self._clock, dialect=self._wanted, check=check, tries=1)
            link = self._links.setdefault(host, made)
            link.is_closed = self._is_closed  # asyncio only
            # threads: if self._is_closed:  # asked last: `close` may have looked for links before this one was there
            # threads:     link.close()
        return link

    def _connections(self, host: Host) -> Connections:
        # redis-py's own asyncio nodes keep connections without a pool; ours are made from the node's settings
        node = self._client.get_node(*host) or AsyncClusterNode(*host, **self._client.connection_kwargs)  # asyncio only
        return connections_like(node.connection_class, node.connection_kwargs, node.max_connections)  # asyncio only
        # threads: node = self._client.get_node(*host) or self._nodes.setdefault(host, ClusterNode(*host))
        # threads: return connections_of(self._client.get_redis_connection(node).connection_pool)


# --- For threads: written by `make sync` from the classes above. ---


class ClusterLink:
    """Links to the nodes of a cluster, created on demand."""

    def __init__(
        self,
        client: redis.RedisCluster,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        where: str,
    ) -> None:
        """Create a link that does not connect yet. If no master serves a slot, it retries for up to `patience` seconds.

        It checks each node before the node's first operation, as a node of the cluster at `where`, if that is given.
        """
        self._client: Any = client
        self._where = where
        self.seen = Seen()
        self._clock = clock
        self._wanted = dialect
        self._patience = patience
        self._links: dict[Host, Link] = {}
        self._nodes: dict[Host, Any] = {}
        self._looking = Guard()
        self._is_closed = False
        self.map = ClusterMap(seeds_of(client), remap=partial(remapped, client))

    @property
    def dialect(self) -> Dialect | None:
        """How the first node that was asked compares and deletes; each other node is asked separately."""
        return next((link.dialect for link in list(self._links.values()) if link.dialect is not None), self._wanted)

    def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation on the node that serves its keys."""
        exchange = partial(perform_one, operation, self.seen, next(CALLS))
        return self._run(exchange, slot_for(operation), deadline)

    def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip to a node; one answer each.

        With asyncio the nodes work in parallel, each of them on one batch after the other.
        """
        answers: dict[int, AnswerT | SegmentedError] = {}
        numbers = [next(CALLS) for _ in operations]
        unsure: set[int] = set()  # may have run: the replies were lost
        give_up = min(deadline, self._clock.now() + self._patience)
        divided = shares(self.map, operations, size_max=BATCH_MAX)

        def ask(slot: int, places: list[int], until: float) -> None:
            batch = [operations[place] for place in places]
            exchange = partial(perform_all, batch, where, self.seen, [numbers[place] for place in places])
            found: list[Any]
            try:
                found = self._run(exchange, slot, until)
            except SegmentedError as error:
                found = [error] * len(batch)
                unsure.update(() if isinstance(error, StoreBusy) else places)
            except (RedisError, OSError) as error:
                found = [our_error(error, where)] * len(batch)
                unsure.update(() if isinstance(error, ResponseError) else places)
            answers.update(zip(places, found, strict=True))

        for left, (slot, places) in zip(range(len(divided), 0, -1), divided, strict=True):
            ask(slot, places, part_of(deadline, left, now=self._clock.now()))
        for place, operation in enumerate(operations):
            if may_have_moved(answers[place]) and self._clock.now() < give_up:
                performing = perform_again if place in unsure else perform_one
                trying = partial(performing, operation, self.seen, numbers[place])
                answers[place] = self._performed(trying, slot_for(operation), where, give_up)
        return [answers[place] for place in range(len(operations))]

    def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt on the same keys; one answer or error each."""
        return self.perform_all((operation, behind), where=where, deadline=deadline)

    def _performed(
        self, make_exchange: MakeExchange[AnswerT], slot: int, where: str, deadline: float
    ) -> AnswerT | SegmentedError:
        try:
            with Translated(where):
                return self._run(make_exchange, slot, deadline)
        except SegmentedError as error:
            return error

    def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:
        """Return the node that serves the slot of each channel, where its messages are published.

        The map is read again if the node `apart_from` has just failed or has lost a slot.
        """
        if apart_from is not None:
            with suppress(SegmentedError):  # the map stays; the node that it names redirects, or fails again
                self._look(Look(self.map.version, apart_from), self._clock.now() + self._patience)
        known = self.map
        return {channel: known.owner(slot_of(channel)) or known.hosts()[0] for channel in channels}

    def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:
        """Send a message within a short time or not at all: to the node of the channel's slot, or by way of `at`."""
        until = min(deadline, self._clock.now() + PUBLISH_SECONDS)
        if at is None:
            self._run(partial(publishing, SHARDED, channel, word), slot_of(channel), until)
        else:
            self._link(at).run(partial(publishing, PUBLISH, channel, word), deadline=until)

    def subscription(self, home: Host | None) -> PubSub:
        """Return a subscription at a node. It does not reconnect, because the next one may be at another node."""
        return self._connections(home or self.map.hosts()[0]).subscription(retries=0)

    def check(self, deadline: float) -> None:
        """Check every master that the client knows."""
        for node in self._client.get_primaries():
            self._link(Host(node.host, int(node.port))).check(deadline)

    def close(self) -> None:
        """Disconnect all wires for good. It waits for the sockets of the unused ones."""
        self._is_closed = True
        for link in list(self._links.values()):
            link.close()
        for node in list(self._nodes.values()):  # the client does not know them
            if node.redis_connection is not None:
                node.redis_connection.close()

    def _run(self, make_exchange: MakeExchange[AnswerT], slot: int, deadline: float) -> AnswerT:
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        going = way(self.map, slot)
        step = next(going)
        while True:
            match step:
                case Visit(host, is_asking):
                    make = attempts.asking if is_asking else attempts.direct
                    try:
                        return self._link(host).run(make, deadline=deadline)
                    except (RedisError, OSError) as error:
                        attempts.failed(error)
                        step = going.throw(error)
                case Look():
                    self._look(step, give_up)
                    step = next(going)
                case Rest(seconds, error):
                    if self._clock.now() + seconds >= give_up:
                        raise error
                    time.sleep(seconds)
                    step = next(going)

    def _look(self, look: Look, give_up: float) -> None:
        """Read the map, unless another task or thread has read it meanwhile."""
        looking = self._looking.lock
        is_ours = looking.acquire(timeout=max(0.0, min(LOOK_SECONDS, give_up - self._clock.now())))
        try:
            self._read_map(look, give_up)
        finally:
            if is_ours:
                looking.release()

    def _read_map(self, look: Look, give_up: float) -> None:
        """Read the map from the first node that answers."""
        for host in self.map.hosts(last=look.apart_from):
            now = self._clock.now()
            if self.map.version != look.version or now >= give_up:
                return
            try:
                rows = self._link(host).run(reading_slots, deadline=min(give_up, now + LOOK_SECONDS))
            except (RedisError, OSError):
                continue
            self.map.replace(rows, asked=host)

    def _link(self, host: Host) -> Link:
        link = self._links.get(host)
        if link is None:
            check = ServerCheck(node_named(host, self._where), self.seen.eviction, Deployment.CLUSTER)
            made = Link(self._connections(host), self._clock, dialect=self._wanted, check=check, tries=1)
            link = self._links.setdefault(host, made)
            if self._is_closed:  # asked last: `close` may have looked for links before this one was there
                link.close()
        return link

    def _connections(self, host: Host) -> Connections:
        # redis-py's own asyncio nodes keep connections without a pool; ours are made from the node's settings
        node = self._client.get_node(*host) or self._nodes.setdefault(host, ClusterNode(*host))
        return connections_of(self._client.get_redis_connection(node).connection_pool)
