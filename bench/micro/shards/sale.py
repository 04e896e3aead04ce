"""One sale to the last unit through a pool in shards: CPU time and operations of an order, by masters."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil
import redis

from bench.clusters import PASSWORD
from bench.cpu import own_seconds
from bench.micro.stock.measure import EARLY, transfers_of
from segmented import RedisStore
from segmented.errors import SegmentedError
from segmented.stock import Grant, ShardedPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.clusters import Masters
    from segmented.clock import Clock
    from segmented.plans.drivers import Store, Wakeups
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

SEGMENTS: Final = 4
"""Per shard."""
QUANTITY_MAX: Final = 5
IDLE_SECONDS: Final = 1.0
MICROSECONDS: Final = 1_000_000
AT_HOME: Final = ("Grant", "Confirm", "ReadNextDue", "NotePool")
"""Operations of every order, at its home shard, and of its process. All others are for units of other shards."""
SENT: Final = ("evalsha", "eval", "delifeq")
"""Commands that a client sends; EVAL follows where a master does not have the script yet."""
PUBLISHED: Final = ("cluster_stats_messages_publish_sent", "cluster_stats_messages_publishshard_sent")
NO_COMMANDS: Final = ("cluster", "config", "info", "ping", "hello", "client", "script", "command")
"""Commands of connections and of this measurement, not of orders."""


class CountingStore:
    """A store that counts operations by their names."""

    def __init__(self, store: RedisStore) -> None:
        """Pass everything on to `store`."""
        self._store = store
        self.clock: Clock = store.clock
        self.counts: Counter[str] = Counter()

    @property
    def wakeups(self) -> Wakeups:
        """The waiting queues of the store."""
        return self._store.wakeups

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Count and run one operation."""
        self.counts[type(operation).__name__] += 1
        return self._store.execute(operation, deadline=deadline)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Count and run several operations."""
        self.counts.update(type(operation).__name__ for operation in operations)
        return self._store.execute_many(operations, deadline=deadline)

    def close(self) -> None:
        """Close nothing: the store is the caller's."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sale: until 90 % was sold, or the rest of it, refusals included."""

    orders: int
    """Orders that were sold."""
    servers_us: tuple[float, ...]
    """CPU time of each master, without what it takes when idle."""
    client_us: float
    operations: Counter[str]
    """By name."""
    commands: Counter[str]
    """Commands that the masters counted, by name, those inside scripts included."""
    transfers: int
    messages: int
    """Messages from master to master: PUBLISH goes to every other one, SPUBLISH to none."""

    @property
    def server_us(self) -> float:
        """CPU time of all masters together."""
        return sum(self.servers_us)

    @property
    def sent(self) -> int:
        """Commands that the client sent."""
        return sum(self.commands[name] for name in SENT)

    @property
    def crossing(self) -> int:
        """Operations for units of other shards: reading all shards, transfers, and the lock that gatherers take."""
        return sum(count for name, count in self.operations.items() if name not in AT_HOME)


@dataclass(frozen=True, slots=True)
class Sale:
    """A whole sale."""

    masters: int
    early: Part
    late: Part
    idle_us: float
    """CPU time of a master per second without orders."""


def sell(fleet: Masters, *, stock_each: int, seed: int) -> Sale:
    """Sell a new pool, with a shard on each master, in orders of 1 to 5 units until a single unit is refused.

    One caller grants and confirms one order after the other. Raises SegmentedError if the pool's books are wrong
    afterwards.
    """
    masters = len(fleet.servers)
    with RedisStore.from_url(fleet.url) as plain:
        store = CountingStore(plain)
        pool, dice = ShardedPool(store, f"bench-shards-{seed}"), random.Random(seed)
        stock = stock_each * masters
        pool.open(stock=stock, segments=SEGMENTS * masters, shards=masters)
        _warm_up(plain, masters, seed)
        pool.state()  # reads the directory, once a process
        meter = _Meter(fleet, store)
        sold = orders = number = 0
        parts: list[Part] = []
        meter.begin()
        while True:
            quantity, number = dice.randint(1, QUANTITY_MAX), number + 1
            grant = pool.grant(f"o{number}", quantity=quantity, timeout=0)
            if isinstance(grant, Grant):
                grant.confirm()
                sold, orders = sold + quantity, orders + 1
            elif quantity == 1:
                break
            if not parts and sold >= EARLY * stock:
                parts.append(meter.part(orders, pool))
                meter.begin()
        parts.append(meter.part(orders - parts[0].orders, pool, before=parts[0].transfers))
        _check(pool, sold, stock)
    return Sale(masters, parts[0], parts[1], meter.idle_us)


def _warm_up(store: Store, masters: int, seed: int) -> None:
    """Load every script on every master, and use what this process uses for a first time."""
    pool = ShardedPool(store, f"bench-warm-{seed}")
    pool.open(stock=SEGMENTS * masters * QUANTITY_MAX, segments=SEGMENTS * masters, shards=masters)
    number = 0
    while isinstance(grant := pool.grant(f"w{number}", quantity=QUANTITY_MAX, timeout=0), Grant):
        grant.confirm()
        number += 1


def _check(pool: ShardedPool, sold: int, stock: int) -> None:
    state, report = pool.state(), pool.audit()
    if (state.confirmed, state.available, sold) != (stock, 0, stock) or not report.is_clean:
        message = f"the books of {pool.sku} are wrong: {sold:,} of {stock:,} units sold, {state}"
        raise SegmentedError(message)


class _Meter:
    """Reads CPU times and counts of all masters, and of this process."""

    def __init__(self, fleet: Masters, store: CountingStore) -> None:
        self._store = store
        self._processes = [psutil.Process(server.pid) for server in fleet.servers]
        self._clients = [
            redis.Redis(unix_socket_path=str(server.socket_path), password=PASSWORD) for server in fleet.servers
        ]
        begun = self._seconds()
        time.sleep(IDLE_SECONDS)
        used = sum(self._seconds()) - sum(begun)
        self.idle_us = used * MICROSECONDS / len(self._processes) / IDLE_SECONDS

    def begin(self) -> None:
        """Start a part."""
        for client in self._clients:
            client.config_resetstat()
        self._store.counts.clear()
        self._messages = self._sent()
        self._servers, self._at, self._client = self._seconds(), time.monotonic(), time.process_time()

    def part(self, orders: int, pool: ShardedPool, *, before: int = 0) -> Part:
        """End a part with so many orders; `before` is the number of transfers that earlier parts had."""
        client = time.process_time() - self._client
        seconds, used = time.monotonic() - self._at, self._seconds()
        idle = self.idle_us * seconds
        operations = self._store.counts.copy()  # before the next readings add to them
        commands: Counter[str] = Counter()
        for one in self._clients:
            found: Any = one.info("commandstats")
            commands.update({name.removeprefix("cmdstat_"): int(stats["calls"]) for name, stats in found.items()})
        return Part(
            orders=orders,
            servers_us=tuple(
                max(0.0, (now - then) * MICROSECONDS - idle) for now, then in zip(used, self._servers, strict=True)
            ),
            client_us=client * MICROSECONDS,
            operations=operations,
            commands=Counter(
                {name: count for name, count in commands.items() if name.partition("|")[0] not in NO_COMMANDS}
            ),
            transfers=transfers_of(pool) - before,
            messages=self._sent() - self._messages,
        )

    def _seconds(self) -> list[float]:
        return [own_seconds(process) for process in self._processes]

    def _sent(self) -> int:
        infos: list[Any] = [client.execute_command("CLUSTER INFO") for client in self._clients]
        return sum(int(info.get(name, 0)) for info in infos for name in PUBLISHED)
