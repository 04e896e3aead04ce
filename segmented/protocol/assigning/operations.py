"""Operations on the assignment of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented.errors import AssignedElsewhere
from segmented.keys import shard_keys
from segmented.models.pools import Assigned
from segmented.protocol.base import Operation
from segmented.protocol.pool.foreign import pool_state
from segmented.protocol.pool.operations import keys_of, kind_of, sight_of_state
from segmented.protocol.wire import Call, always, plain_call, readable, script_call, text

if TYPE_CHECKING:
    from segmented.models.assignments import Assignment
    from segmented.protocol.wire import Reply


@dataclass(frozen=True, slots=True)
class AssignPool(Operation[Assigned]):
    """Name the queue and the step of the workers that take the pool's submitted orders from now on."""

    sku: str
    assignment: Assignment

    def call(self) -> Call:
        return script_call("assign_pool", keys_of(self.sku), *self.assignment.texts)

    def answer(self, reply: Reply) -> Assigned:
        kind_of(self.sku, reply)
        return Assigned(pool_state(self.sku, reply[1]), replay=text(reply[2]) == "1")

    acknowledges = always

    sight = sight_of_state


@dataclass(frozen=True, slots=True)
class CheckAssignment(Operation[None]):
    """Raise AssignedElsewhere for a pool whose orders a worker with this queue and step must not take."""

    sku: str
    assignment: Assignment

    def call(self) -> Call:
        return plain_call("HMGET", shard_keys(self.sku).meta, "queue", "step")

    def answer(self, reply: Reply) -> None:
        queue, step = ("" if value is None else readable(value) for value in reply)
        if not self.assignment.takes(queue or None, step or None):
            raise AssignedElsewhere(self.sku, queue, step)
