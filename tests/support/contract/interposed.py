"""Lets something happen just before a step of a request, so that a race is the same at every run."""

from collections.abc import Callable
from typing import Any

from segmented.plans import Batch, Plan, Try, Within, perform, substituted
from segmented.protocol import Effect, Operation
from segmented.stock.settings import PoolSettings
from segmented.stock.sharded.plans import ShardedPlans
from tests.fixtures.stores import Side

Happening = tuple["Callable[[Effect[Any]], bool]", "Callable[[], Plan[Any]]"]
"""Which effect it comes before, and what happens."""


class NeverReachedError(AssertionError):
    """A step that was waited for never came."""


def process_of(side: Side, sku: str) -> ShardedPlans:
    """Return what one process has of a pool in shards, as plans."""
    return ShardedPlans(PoolSettings(sku, ttl=60.0, hold=600.0), 0.0, side.clock)


def asked_by(effect: Effect[Any]) -> tuple[Operation[Any], ...]:
    """Return the operations that an effect performs."""
    match effect:
        case Batch(operations, _):
            return operations
        case Within(operation, _) | Try(operation):
            return (operation,)
        case _:
            return (effect,)  # type: ignore[return-value]  # one that is no operation has none of their types


def asks(kind: type[Operation[Any]], *, keeps: bool = False) -> Callable[[Effect[Any]], bool]:
    """Say which effects perform an operation of this kind; with `keeps`, a grant whose refusal is kept."""
    return lambda effect: any(
        isinstance(one, kind) and (not keeps or bool(getattr(one, "keep_refusal", False))) for one in asked_by(effect)
    )


def interposed(plan: Plan[Any], *happenings: Happening) -> Plan[Any]:
    """Run a plan; before the first effect that the first happening names, let it happen; then the next one's turn is.

    Raises NeverReachedError if a step that was waited for never came.
    """
    left = list(happenings)

    def after_what_happens(effect: Effect[Any]) -> Plan[Any]:
        if left and left[0][0](effect):
            yield from left.pop(0)[1]()
        return (yield from perform(effect))

    outcome = yield from substituted(plan, after_what_happens)
    if left:
        raise NeverReachedError
    return outcome
