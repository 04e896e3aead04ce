"""Production functions that are no plans, under the simulator: each call of a store or a database is a step.

A function runs in a greenlet, unchanged. Its store hands every operation to the scheduler, and waits for the answer.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from segmented.clock import Clock
from segmented.errors import PoolMissing, SegmentedError
from segmented.plans import Plan
from segmented.protocol import Effect, Operation
from segmented.stores.one_by_one import one_by_one
from segmented.stores.wakeups import ThreadWakeups

AnswerT = TypeVar("AnswerT")


class SteppedStore:
    """The store of one process: all its functions share it. It never waits, so callers give a timeout of 0."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.wakeups = ThreadWakeups(clock)
        self.is_dead = False

    def ask(self, effect: Effect[AnswerT]) -> AnswerT:
        """Let the scheduler perform an effect. A process that died does nothing any more, not even clean up.

        A keeper's thread is no step of the schedule: an answer that ends what it watches lets it end.
        """
        scheduler = getcurrent().parent
        if scheduler is None:
            nowhere = "a keeper's thread"
            raise PoolMissing(nowhere)
        if self.is_dead:
            raise GreenletExit
        return scheduler.switch(effect)  # type: ignore[no-any-return]  # what the scheduler hands back

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # as above
        return self.ask(operation)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """There is nothing to close."""


def stepped(store: SteppedStore, function: Callable[[], AnswerT]) -> Plan[AnswerT]:
    """Run a function that uses `store`, as a plan."""
    running = greenlet(function)
    found: Any = running.switch()
    while not running.dead:
        try:
            reply = yield found
        except GeneratorExit:
            store.is_dead = True
            running.throw(GreenletExit)
            raise
        except Exception as error:  # noqa: BLE001  # the function handles it
            found = running.throw(error)
        else:
            found = running.switch(reply)
    return found  # type: ignore[no-any-return]  # what the function returned
