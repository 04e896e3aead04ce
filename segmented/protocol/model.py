"""Dispatch of operations to the parts of the model: locks, pools and deduplication, with one clock for all.

A name belongs to one kind of lock at a time, just as the main key on a server has one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from segmented.errors import WrongKind
from segmented.protocol.archive.model import ArchiveModel
from segmented.protocol.assigning.model import AssigningModel
from segmented.protocol.cache.model import CacheModel
from segmented.protocol.carts.model import CartModel
from segmented.protocol.dedup.model import DedupModel
from segmented.protocol.forgetting.model import ForgettingModel
from segmented.protocol.freezing.model import FreezingModel
from segmented.protocol.kinds import lock_kinds
from segmented.protocol.lock.line_model import LeavingModel
from segmented.protocol.lock.model import KIND as LOCK
from segmented.protocol.operator.model import OperatorModel
from segmented.protocol.outbox.model import OutboxModel
from segmented.protocol.relay.model import RelayModel
from segmented.protocol.sequencer.model import SequencerModel
from segmented.protocol.shards.model import ShardModel

if TYPE_CHECKING:
    from segmented import protocol as op
    from segmented.clock import Clock
    from segmented.protocol.base import Operation
    from segmented.protocol.kinds import Model
    from segmented.protocol.lock.model import LockModel

AnswerT = TypeVar("AnswerT")


class MemoryModel:
    """All locks and pools of one server, in memory. Each operation is one step. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Create a server without any locks or pools; `clock` gives its time."""
        self._freed: list[str] = []
        publish = self._freed.append
        self._models = {kind: kind.model(clock, publish) for kind in lock_kinds()}
        self._taking = {operation: kind for kind in self._models for operation in kind.takes}
        operator = OperatorModel(*self._models.values())
        pools = OutboxModel(clock, publish)
        carts, shards = CartModel(clock, pools.found), ShardModel(pools)
        self._freezing = FreezingModel(clock, pools, publish)
        parts: tuple[Model, ...] = (
            *self._models.values(),
            CacheModel(clock, cast("LockModel", self._models[LOCK]), publish),
            operator,
            LeavingModel(clock, self._models.values()),
            SequencerModel(operator.show),
            pools,
            carts,
            shards,
            RelayModel(pools.found),
            AssigningModel(pools.found, pools.has),
            ForgettingModel(clock, pools.found),
            ArchiveModel(pools, carts, shards.retire),
            self._freezing,
            DedupModel(clock, publish),
        )
        self._bodies = {operation: body for part in parts for operation, body in part.bodies().items()}

    def execute(self, operation: op.Operation[AnswerT]) -> AnswerT:
        """Perform one operation."""
        self._check_kind(operation)
        self._freezing.check(operation)
        return cast("AnswerT", self._bodies[type(operation)](operation))

    def take_freed(self) -> list[str]:
        """Return the channels that got a message since the last call."""
        freed = self._freed[:]
        self._freed.clear()
        return freed

    def _check_kind(self, operation: Operation[Any]) -> None:
        """Raise WrongKind if the operation would take a name that another kind holds."""
        taking = self._taking.get(type(operation))
        if taking is None:
            return
        name: str = operation.name  # type: ignore[attr-defined]  # every operation that takes a lock has one
        if any(model.holds(name) for kind, model in self._models.items() if kind is not taking):
            message = f"the name {name!r} belongs to another kind of lock"
            raise WrongKind(message)
