"""A world whose server loses a suffix of its changes: at a failover an earlier copy of its pools takes its place.

The copy's clock may be behind. Each process remembers what it has seen of every pool, by the rule of docs/how-to/
recover-a-pool.md, written here once more: highest epoch with its sequence number, the server on which that was seen,
and highest fencing token. A pool remembers with which sequence number each server began.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from segmented import protocol as op
from segmented.errors import DatabaseUnavailable
from segmented.models import Granted, PoolState
from segmented.protocol import Effect, Operation
from segmented.stores.memory import MemoryModel
from segmented.testing import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import ManualClock
    from segmented.protocol.pool.model_records import ModelPool
    from segmented.testing.simulator import Actor

AnswerT = TypeVar("AnswerT")

NATURE: Final = "nature"
"""The actor that makes things fail; it is no process, and does not die."""
READS: Final = (
    op.ReadPool,
    op.ReadOrders,
    op.ReadLedger,
    op.ScanOrders,
    op.ScanHolds,
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


@dataclass(slots=True)
class Sight:
    """The state of one pool that one process has seen."""

    at: tuple[int, int] = (0, 0)
    """Epoch and sequence number."""
    token: int = 0
    server: int | None = None
    """The server on which the sequence number was seen; None: not sure."""

    def learn(self, epoch: int, answer: object, server: int, *, is_sure: bool) -> None:
        """Remember what an answer of a pool in this epoch, on this server, tells."""
        before, self.at = self.at, (0, 0)
        state = getattr(answer, "state", None)
        if isinstance(answer, PoolState):
            self.at = max(self.at, (answer.epoch, answer.sequence))
        elif isinstance(state, PoolState):
            self.at = max(self.at, (state.epoch, state.sequence))
        elif isinstance(sequence := getattr(answer, "sequence", None), int):
            self.at = max(self.at, (epoch, sequence))
        if self.at >= before and (is_sure or self.server == server):
            self.server = server
        elif self.at > before:
            self.server = None
        self.at = max(self.at, before)
        self.token = max(self.token, getattr(answer, "fencing_token", None) or 0)


class ServerClock:
    """The server's clock: the world's, or behind it."""

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self.behind = 0.0

    def now(self) -> float:
        return self._world.now() - self.behind


class ForgetfulServer(MemoryModel):
    """The model of a server, with a replica that lags, asked by processes that remember what they have seen."""

    def __init__(self, clock: ServerClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.pools: dict[str, ModelPool] = self._freezing._pools._pools  # noqa: SLF001  # to put earlier ones in place
        self.caller = ""
        self.sights: dict[tuple[str, str], Sight] = {}
        """(process, sku) -> what it has seen"""
        self.counts: Counter[str] = Counter()
        self.watch: Callable[[Operation[Any], object], None] = lambda _, __: None
        """Called with each operation that was answered, and its answer."""
        self._replica: dict[str, ModelPool] = {}
        self.identity = 0
        self._began: dict[str, list[tuple[int, int]]] = {}
        """sku -> the servers of the pool, each with the sequence number with which it began."""
        self._replica_began: dict[str, list[tuple[int, int]]] = {}

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation for the process that is the caller."""
        sku: str = getattr(operation, "sku", "")
        before = self.pools.get(sku)
        last = 0 if before is None else before.sequence
        sight = self.sights.setdefault((self.caller, sku), Sight())
        if before is None:
            answer = super().execute(operation)
        else:
            if type(operation) not in READS or isinstance(operation, op.FreezePool):
                self._freeze_if_behind(before, sight)
            if type(operation) not in READS and before.frozen is None:
                self._note_server(before, last)
            answer = self._with_floor(before, sight, operation)
        pool = self.pools.get(sku)
        if pool is not None and (before is None or isinstance(operation, op.ThawPool)):
            self._note_server(pool, last)
        if pool is not None:
            if isinstance(answer, PoolState) and answer.frozen is None and self._lacks(pool, sight):
                answer = cast("AnswerT", replace(answer, frozen=sight.at))
            self.watch(operation, answer)
            sight.learn(pool.epoch, answer, self.identity, is_sure=type(operation) not in READS)
        return answer

    def _freeze_if_behind(self, pool: ModelPool, sight: Sight) -> None:
        if pool.frozen is None and self._lacks(pool, sight):
            self.counts["overtaken changes noticed"] += sight.at <= (pool.epoch, pool.sequence)
            super().execute(op.FreezePool(pool.sku, pool.epoch))
            pool.frozen = sight.at
            self.counts["frozen by a process that was ahead"] += 1

    def _note_server(self, pool: ModelPool, last: int) -> None:
        """Note a new server with the last change of the pool before it changed anything."""
        began = self._began.setdefault(pool.sku, [])
        if [who for who, _ in began[-1:]] != [self.identity]:
            began.append((self.identity, last))

    def _lacks(self, pool: ModelPool, sight: Sight) -> bool:
        """Return whether the pool lacks what the process has seen, by numbers, or by servers if they agree."""
        if sight.at > (pool.epoch, pool.sequence):
            return True
        if sight.at[0] < pool.epoch or sight.server in {None, self.identity}:
            return False
        began = self._began.get(pool.sku, [])
        behind = [index + 1 for index, (who, _) in enumerate(began) if who == sight.server]
        if not behind:
            return True
        return sight.at[1] > [*(number for _, number in began), pool.sequence][behind[-1]]

    def _with_floor(self, pool: ModelPool, sight: Sight, operation: Operation[AnswerT]) -> AnswerT:
        """Perform it; the token of a new grant exceeds those that the process has seen."""
        before = pool.fence
        pool.fence = floor = max(before, sight.token)
        is_new = False
        try:
            answer = super().execute(operation)
            is_new = isinstance(answer, Granted) and pool.fence > floor
        finally:
            if not is_new:
                pool.fence = before
        return answer

    # --- what fails ---

    def replicate(self) -> None:
        """Bring the replica up to date."""
        self._replica = {sku: copied(pool) for sku, pool in self.pools.items()}
        self._replica_began = {sku: [*began] for sku, began in self._began.items()}

    def fail_over(self, *, behind: float) -> bool:
        """Put the replica in the server's place, its clock so far behind. Return whether changes are lost."""
        found = {sku: (pool.epoch, pool.sequence) for sku, pool in self.pools.items()}
        is_lost = found != {sku: (pool.epoch, pool.sequence) for sku, pool in self._replica.items()}
        self.pools.clear()
        self.pools.update({sku: copied(pool) for sku, pool in self._replica.items()})
        self._began = {sku: [*began] for sku, began in self._replica_began.items()}
        self.identity += 1
        self.clock.behind = behind
        self.counts["failovers"] += 1
        self.counts["lost suffixes"] += is_lost
        self.counts["clocks behind"] += bool(behind)
        return is_lost


def copied(pool: ModelPool) -> ModelPool:
    """Copy a pool with all that changes in it; records and ledger entries are frozen."""
    values = {one.name: copy(getattr(pool, one.name)) for one in fields(pool)}
    values["entries"] = {order_id: copy(entry) for order_id, entry in pool.entries.items()}
    return replace(pool, **values)


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

    def _kill(self, process: str) -> None:
        if process == NATURE:
            return
        self.counts["kills"] += 1
        self.on_kill(process)
        super(ForgetfulWorld, self)._kill(process)
        for key in [key for key in self.server.sights if key[0] == process]:
            del self.server.sights[key]
