# Written by `make sync` from async_cluster_link.py: change that module.
"""The link of a store to a cluster, for threads: one link per node, and the way of each request between them.

The nodes' connections have the settings, credentials and TLS of the client's own nodes. This module keeps the map of
the slots (`cluster_map`) itself instead of using the client's, so that deadlines hold while nodes are unreachable.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.cluster import ClusterNode
from redis.exceptions import RedisError, ResponseError

from segmented.errors import SegmentedError, StoreBusy
from segmented.process import Guard
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
from segmented.stores.redis.connections import (
    Connections,
    ServerCheck,
    connections_of,
    pinging,
    publishing,
)
from segmented.stores.redis.edge import Translated, our_error
from segmented.stores.redis.exchange import CALLS, Seen, perform_one
from segmented.stores.redis.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis
    from redis.client import PubSub

    from segmented.clock import Clock
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

LOOK_SECONDS: Final = 1.0
"""Seconds for one node to report the map; after that the next node is asked."""


class ClusterLink:
    """Links to the nodes of a cluster, created on demand."""

    def __init__(
        self,
        client: redis.RedisCluster,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        is_checked: bool = False,
    ) -> None:
        """Create a link that does not connect yet. If no master serves a slot, it retries for up to `patience` seconds.

        It checks each node before the node's first operation, unless `is_checked` says that all were checked.
        """
        self._client: Any = client
        self._is_checked = is_checked
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
            self._link(Host(node.host, int(node.port))).run(pinging, deadline=deadline)

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
            check = None if self._is_checked else ServerCheck(node_named(host), self.seen.eviction, Deployment.CLUSTER)
            made = Link(self._connections(host), self._clock, dialect=self._wanted, check=check, tries=1)
            link = self._links.setdefault(host, made)
            if self._is_closed:  # asked last: `close` may have looked for links before this one was there
                link.close()
        return link

    def _connections(self, host: Host) -> Connections:
        # redis-py's own asyncio nodes keep connections without a pool; ours are made from the node's settings
        node = self._client.get_node(*host) or self._nodes.setdefault(host, ClusterNode(*host))
        return connections_of(self._client.get_redis_connection(node).connection_pool)
