"""A process that dies at any one step: a store and a database that stop everything when a step counter runs out.

`Deaths` raises in the test's own process. `was_killed` forks one, which gets a SIGKILL: nothing is cleaned up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Connection, event

from segmented.errors import SegmentedError
from segmented.orders import Gate
from segmented.plans.drivers import Store
from segmented.protocol import Operation
from tests.support.pools.engines import engine_of

AnswerT = TypeVar("AnswerT")


class Died(BaseException):
    """The process is gone: nothing catches it."""


class StepCounter:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, steps: int | None = None) -> None:
        self.steps = steps
        self.counted = 0

    def count(self) -> None:
        self.counted += 1
        if self.counted == self.steps:
            self.end()

    def end(self) -> None:
        """End the process, as far as a test's own can be."""
        raise Died


class KillingCounter(StepCounter):
    """Kills its own process, as the kernel does when memory is short."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def was_killed(work: Callable[[StepCounter], object], step: int) -> bool:
    """Do the work in a forked process that is killed at a step; return whether it was, and not done before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(KillingCounter(step))
            code = 0
        finally:
            os._exit(code)  # nothing of the test goes on here
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


class Deaths:
    """Lets a process die at its first step, then at its second, until it has lived through all of them.

    `for step in deaths:` prepares the step's own pool, calls `deaths.at_step(work)` once and checks what is left.
    """

    STEPS_MAX = 200

    def __init__(self, *gates: Gate) -> None:
        """`gates` are those of the process; its stores are made by `store`."""
        self.counter = StepCounter()
        self.has_died = True
        for gate in gates:
            let_die(gate, self.counter)

    def store(self, store: Store) -> DyingStore:
        return DyingStore(store, self.counter)

    def __iter__(self) -> Iterator[int]:
        for step in range(1, self.STEPS_MAX):
            self._step = step
            yield step
            if not self.has_died:
                assert step > 5, "it died at hardly any step"
                return
        raise AssertionError(f"it died at each of {self.STEPS_MAX} steps")

    def at_step(self, work: Callable[..., object], *arguments: object, **options: object) -> bool:
        """Do the work in a process that dies at this step; return whether it died."""
        self.counter.steps, self.counter.counted = self._step, 0
        self.has_died = False
        try:
            work(*arguments, **options)
        except Died:
            self.has_died = True
        finally:
            self.counter.steps = None
        return self.has_died


class DyingStore:
    """A real store; the process may die before an operation, or after it was done and before the answer is used."""

    def __init__(self, store: Store, counter: StepCounter) -> None:
        self._store = store
        self._fuse = counter
        self.clock = store.clock
        self.wakeups = store.wakeups

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self._fuse.count()
        answer = self._store.execute(operation, deadline=deadline)
        self._fuse.count()
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        self._fuse.count()
        answers = self._store.execute_many(operations, deadline=deadline)
        self._fuse.count()
        return answers

    def close(self) -> None:
        """The real one stays open."""


def let_die(gate: Gate, counter: StepCounter) -> None:
    """Let the process die before or after any statement, and before any commit; what was not committed is undone."""
    engine = engine_of(gate)  # to stand between the gate and its database

    def count(connection: Connection, *_: Any) -> None:  # noqa: ANN401  # every event has other arguments
        try:
            counter.count()
        except Died:
            connection.connection.rollback()  # as the end of its process would
            connection.invalidate()
            raise

    def count_own(driver: Any, *_: object) -> None:  # noqa: ANN401  # of either database
        """Count the statements that go to psycopg itself, too; a cursor's have the events."""
        if isinstance(driver, psycopg.Connection) and "execute" not in vars(driver):
            real = driver.execute

            def execute(*parts: Any, **options: Any) -> Any:  # noqa: ANN401  # as the real one
                counter.count()
                answer = real(*parts, **options)
                counter.count()
                return answer

            driver.execute = execute  # type: ignore[method-assign]  # of this connection only

    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(engine, name, count)
    event.listen(engine, "checkout", count_own)
