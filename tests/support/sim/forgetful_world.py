"""A world whose server loses a suffix of its changes: at a failover an earlier copy of its pools takes its place.

The copy's clock may be behind. Each process remembers what it has seen of every pool, in the memory that a store has.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import DatabaseUnavailable, PoolFrozen
from segmented.keys import shard_keys
from segmented.models import OrderRecord
from segmented.plans import Plan, perform
from segmented.protocol import Effect, Operation
from segmented.protocol.wire import Dialect, Peer
from segmented.stores.memory import MemoryModel
from segmented.stores.redis.exchange import Seen
from tests.support.sim.replicas import replica_of
from tests.support.sim.simulator import Actor, Simulation, Sleep

AnswerT = TypeVar("AnswerT")

TOTALS: Final = ("epoch", "sequence", "available", "reserved", "confirmed", "opened", "restocked", "withdrawn")
NUMBERS: Final = (*TOTALS, "frozen", "server")

NATURE: Final = "nature"
"""The actor that makes things fail; it is no process, and does not die."""
READS: Final = (
    op.ReadPool,
    op.ReadOrders,
    op.ReadLedger,
    op.ScanOrders,
    op.ScanKey,
    op.FreezePool,
    op.LeavePoolLine,  # it asks nothing of the stock
)
"""Operations that a frozen pool answers. ThawPool freezes a pool that is behind, and then thaws it."""


@dataclass(frozen=True, slots=True)
class Do(Effect[Any]):
    """Do something in one step that is not of the stock's server: ask the order database, or let something fail."""

    act: Callable[[], Any]
    may_fail: bool = True
    """Whether its answer may be lost, as of a database."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the keys of a pool say, read beside its scripts."""

    sku: str
    epoch: int
    sequence: int
    frozen: str | None
    available: int
    reserved: int
    confirmed: int
    stocked: int
    server: str
    stock: tuple[int, ...]


class ServerClock:
    """The server's clock: the world's, or behind it."""

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self.behind = 0.0

    def now(self) -> float:
        return self._world.now() - self.behind


class ForgetfulServer(MemoryModel):
    """A server with a replica that lags, asked by processes that remember what they have seen, as stores do."""

    def __init__(self, clock: ServerClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.caller = ""
        self.sights: dict[str, Seen] = {}
        """What each process has seen."""
        self.counts: Counter[str] = Counter()
        self.watch: Callable[[Operation[Any], object], None] = lambda _, __: None
        """Called with each operation that was answered, and its answer."""
        self.identity = -1
        self._replica: tuple[dict[str, tuple[int, int]], Callable[[], None]] = ({}, lambda: None)
        self._become_another()

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation for the process that is the caller."""
        seen = self.sights.setdefault(self.caller, Seen())
        sku: str = getattr(operation, "sku", "")
        was_frozen = self.is_frozen(sku)
        try:
            answer = super().execute_for(seen, operation)
        except PoolFrozen as error:
            if not was_frozen and self.is_frozen(sku):
                self.counts["frozen by a process that was ahead"] += 1
                self.counts["overtaken changes noticed"] += error.seen <= error.found
            raise
        if self.ask("EXISTS", shard_keys(sku).meta):
            self.watch(operation, answer)
        return answer

    @property
    def name(self) -> str:
        """Its identity, as it tells a connection."""
        return f"server{self.identity}"

    def records(self, sku: str) -> tuple[OrderRecord, ...]:
        """Read all orders of a pool."""
        return super().execute(op.ScanOrders(sku, 0))[1]

    def is_frozen(self, sku: str) -> bool:
        return self.ask("HGET", shard_keys(sku).meta, "frozen") is not None

    def numbers(self, sku: str) -> Numbers:
        """Read a pool's numbers beside its scripts."""
        keys = shard_keys(sku)
        found = self.ask("HMGET", keys.meta, *NUMBERS)
        epoch, sequence, available, reserved, confirmed, opened, restocked, withdrawn = map(int, found[:-2])
        frozen, server = (None if one is None else one.decode() for one in found[-2:])
        stock = tuple(map(int, self.ask("HGETALL", keys.stock)[1::2]))
        stocked = opened + restocked - withdrawn
        return Numbers(sku, epoch, sequence, frozen, available, reserved, confirmed, stocked, server or "", stock)

    def chain_at(self, sku: str, epoch: int, sequence: int) -> str | None:
        """Return the digest of a change in the ledger; None if it is not there."""
        entry_id = f"{epoch}-{sequence}"
        found = self.ask("XRANGE", shard_keys(sku).ledger, entry_id, entry_id)
        fields = found[0][1] if found else []
        return fields[fields.index(b"chain") + 1].decode() if found else None

    # --- what fails ---

    def replicate(self) -> None:
        """Bring the replica up to date."""
        self._replica = self._ends(), replica_of(self, *self._skus())

    def fail_over(self, *, behind: float) -> bool:
        """Put the replica in the server's place, its clock so far behind. Return whether changes are lost."""
        kept, take_over = self._replica
        is_lost = self._ends() != kept
        take_over()
        self._become_another()
        self.clock.behind = behind
        self.counts["failovers"] += 1
        self.counts["lost suffixes"] += is_lost
        self.counts["clocks behind"] += bool(behind)
        return is_lost

    def _become_another(self) -> None:
        self.identity += 1
        self._peer = Peer(Dialect.SCRIPT, self.name)

    def _skus(self) -> list[str]:
        return [key.decode().partition("{")[2].partition(":")[0] for key in self.ask("KEYS", "seg:*:meta")]

    def _ends(self) -> dict[str, tuple[int, int]]:
        return {found.sku: (found.epoch, found.sequence) for found in map(self.numbers, self._skus())}


def failing(chance: random.Random, replicate: Callable[[], object], fail_over: Callable[[], object]) -> Plan[None]:
    """Bring the replica up to date, and fail over to it later, once to three times."""
    for _ in range(chance.randint(1, 3)):
        for act in (replicate, fail_over):
            yield from perform(Sleep(chance.uniform(0, 0.04)))
            yield from perform(Do(act, may_fail=False))


@dataclass(slots=True)
class ForgetfulWorld(Simulation):
    """`Simulation` on a server that forgets."""

    server: ForgetfulServer = field(init=False)
    unsure: float = 0.0
    """The probability that the order database does something and its answer is lost."""
    on_kill: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        """Put the server in the model's place."""
        super(ForgetfulWorld, self).__post_init__()
        self.model = self.server = ForgetfulServer(ServerClock(self.clock))

    @property
    def counts(self) -> Counter[str]:
        """How often things happened, by what they are."""
        return self.server.counts

    def calm_down(self) -> None:
        """From now on nothing fails."""
        self.kills = self.lost_replies = self.unsure = 0.0

    def _step(self, actor: Actor) -> None:
        self.server.caller = actor.process
        super(ForgetfulWorld, self)._step(actor)

    def _perform(self, actor: Actor, effect: Effect[Any]) -> None:
        if not isinstance(effect, Do):
            super(ForgetfulWorld, self)._perform(actor, effect)
            return
        self._note(actor, effect)
        try:
            actor.reply = effect.act()
        except Exception as error:  # noqa: BLE001  # the actor handles it
            actor.failure = error
        if effect.may_fail and actor.failure is None and self._is_lost(self.unsure):
            actor.reply, actor.failure = None, DatabaseUnavailable("the reply was lost")

    def kill(self, process: str) -> None:
        if process == NATURE:
            return
        self.counts["kills"] += 1
        self.on_kill(process)
        super(ForgetfulWorld, self).kill(process)
        self.server.sights.pop(process, None)
