"""A process that kills itself with SIGKILL at one step of an action on a pool: a real end, with nothing cleaned up."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from segmented import Order, Outbox, Pool, RedisStore, Reserved
from segmented.orders import Gate, WorkTerms, connect, rebuild, take_envelope
from segmented.orders.sale import cancel_order, finish_reserved, take_order
from segmented.plans.drivers import Store
from tests.support.dying import DyingStore, StepCounter, let_die
from tests.support.pools.engines import gate_on

END_SECONDS: Final = 200.0
TTL: Final = 600.0
"""Seconds of a segment's lease, which no test waits for: it ends a dead process's lease itself."""
WORK: Final = 0.05
HOLD: Final = 600.0
SOLD: Final = 1
"""The number that the operator gives to a thaw."""
TERMS: Final = WorkTerms(ttl=TTL, work=WORK)
PRELOADED: Final = ("tests.support.killed", "sqlalchemy.dialects.sqlite", "psycopg", "redis.cluster")
"""Modules that the fork server imports once, so that a process starts in milliseconds."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on the pool `sku`, and the step at which its process dies."""

    name: str
    url: str
    database: str | None
    sku: str
    order_id: str
    step: int


class KillingCounter(StepCounter):
    """Counts steps, and kills its own process at one of them."""

    def count(self) -> None:
        self.counted += 1
        if self.counted == self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def was_killed(action: Action) -> bool:
    """Run the action in a process of its own; return whether it was killed, and not done before that step."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=act, args=(action,))
    process.start()
    process.join(END_SECONDS)
    code = process.exitcode
    process.kill()
    process.join()
    process.close()
    assert code in {0, -signal.SIGKILL}, f"the process of {action} ended with code {code}"
    return code != 0


def act(action: Action) -> None:
    """Do what the action says, and die at its step."""
    with ExitStack() as stack:
        store = stack.enter_context(RedisStore.from_url(action.url))
        gate = None if action.database is None else stack.enter_context(gate_on(connect(action.database)))
        counter = KillingCounter()
        if gate is not None:
            let_die(gate, counter)
        pool = shop(DyingStore(store, counter), action.sku)
        if gate is None:
            counter.steps = action.step
            pool.thaw(sold=SOLD)
            return
        doing = prepared(action.name, pool, gate, action.order_id)
        counter.counted, counter.steps = 0, action.step
        doing()


def shop(store: Store, sku: str) -> Pool:
    """Return the pool."""
    return Pool(store, sku, ttl=TTL, hold=HOLD, outbox=Outbox())


def prepared(name: str, pool: Pool, gate: Gate, order_id: str) -> Callable[[], object]:
    """Do what comes before the action, and return the action itself. Both are safe to repeat."""
    if name == "rebuild":
        return lambda: rebuild(pool, gate)
    if name == "take_order":
        return lambda: take_order(pool, gate, Order(order_id, 2), timeout=60)
    if name == "take_envelope":
        pool.submit(order_id, quantity=2)
        return lambda: take_envelope(pool, [order_id], gate=gate, terms=TERMS)
    reserved = pool.reserve(order_id, quantity=2)
    if name == "cancel_order":
        return lambda: cancel_order(pool, gate, Order(order_id, 2))
    if isinstance(reserved, Reserved):
        return lambda: finish_reserved(pool, gate, Order(order_id, 2), reserved)
    return lambda: None  # settled by the run before
