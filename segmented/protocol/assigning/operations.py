"""Operations on the assignment of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented.models.pools import Assigned
from segmented.protocol.base import Operation

if TYPE_CHECKING:
    from segmented.models.assignments import Assignment


@dataclass(frozen=True, slots=True)
class AssignPool(Operation[Assigned]):
    """Name the queue and the step of the workers that take the pool's submitted orders from now on."""

    sku: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CheckAssignment(Operation[None]):
    """Raise AssignedElsewhere for a pool whose orders a worker with this queue and step must not take."""

    sku: str
    assignment: Assignment
