"""Redis answers as the readable model does when orders are submitted, worked on and swept among everything else."""

from __future__ import annotations

from functools import partial
from typing import Final

from hypothesis import settings, strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.models import UNASSIGNED, Assignment, Order
from segmented.protocol.wire import Dialect
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import (
    CUSTOMERS,
    HOLDERS,
    LIVES,
    LONG_MS,
    ORDERS,
    QUANTITIES,
    SETTINGS,
    PoolsAgree,
    timeless,
)

ALL: Final = ("a", "b", "c", "d", "e", "f", "ü {%}")
MANY = st.lists(ORDERS, min_size=1, max_size=6, unique=True)
WANTED = st.lists(st.tuples(ORDERS, QUANTITIES, CUSTOMERS), min_size=1, max_size=6)
BEGUN_MAX = st.sampled_from([1, 5])
ASSIGNMENTS = st.builds(Assignment, st.sampled_from([None, "mugs"]), st.sampled_from([None, "shop:pack"]))


class SubmittedAgree(PoolsAgree):
    """One pool, most of whose orders are submitted."""

    @rule(wanted=WANTED, after_ms=LIVES)
    def submit(self, wanted: list[tuple[str, int, str | None]], after_ms: int) -> None:
        orders = tuple(Order(*order) for order in wanted)
        self.agree_on(op.ReserveMany(self.name, orders, LONG_MS, publish_after_ms=after_ms))

    @rule(wanted=WANTED, after_ms=LIVES)
    def queue(self, wanted: list[tuple[str, int, str | None]], after_ms: int) -> None:
        orders = tuple(Order(*order) for order in wanted)
        self.agree_on(op.QueueOrders(self.name, orders, after_ms))

    @rule(order_ids=MANY, holder=HOLDERS, ttl_ms=LIVES, work_ms=LIVES, begun_max=BEGUN_MAX)
    def take_orders(self, order_ids: list[str], holder: str, ttl_ms: int, work_ms: int, begun_max: int) -> None:
        self.agree_on(op.TakeOrders(self.name, tuple(order_ids), holder, ttl_ms, LONG_MS, work_ms, begun_max))

    @rule(order_id=ORDERS, holder=HOLDERS)
    def take_order(self, order_id: str, holder: str) -> None:
        self.agree_on(op.TakeOrders(self.name, (order_id,), holder, 1, LONG_MS, 1, 5))

    @rule(order_ids=MANY, holder=HOLDERS)
    def renew_work(self, order_ids: list[str], holder: str) -> None:
        self.agree_on(op.RenewWork(self.name, tuple(order_ids), holder, LONG_MS, LONG_MS, LONG_MS))

    @rule(order_ids=MANY, holder=HOLDERS, delay_ms=LIVES, counts=st.booleans(), begun_max=BEGUN_MAX)
    def put_off(self, order_ids: list[str], holder: str, delay_ms: int, begun_max: int, *, counts: bool) -> None:
        self.agree_on(
            op.PutOff(self.name, tuple(order_ids), holder, delay_ms, counts, begun_max, "it  rained", LONG_MS)
        )

    @rule(limit=st.sampled_from([1, 100]), token=st.sampled_from([None, 1, 2]), begun_max=BEGUN_MAX)
    def sweep(self, limit: int, token: int | None, begun_max: int) -> None:
        # A base of 1 ms, doubled with every publication, would end between two of these steps, now here and now there.
        self.agree_on(op.SweepOutbox(self.name, limit, token, LONG_MS, LONG_MS, LONG_MS, begun_max))
        self.agree_on(op.ReadOutbox(self.name))

    @rule(named=ASSIGNMENTS, worker=ASSIGNMENTS, order_ids=MANY)
    def work_for_named_workers(self, named: Assignment, worker: Assignment, order_ids: list[str]) -> None:
        ids = tuple(order_ids)
        self.agree_on(op.AssignPool(self.name, named))
        self.agree_on(op.CheckAssignment(self.name, worker))
        self.agree_on(op.SettleMany(self.name, "confirmed", ids, idle=True, assignment=worker))
        self.agree_on(op.TakeOrders(self.name, ids, "h", 1, LONG_MS, 1, 5, assignment=worker))
        self.agree_on(op.SweepOutbox(self.name, 100, None, LONG_MS, LONG_MS, LONG_MS, 5, worker))
        self.agree_on(op.AssignPool(self.name, UNASSIGNED))

    @rule(order_ids=MANY)
    def replay_dead(self, order_ids: list[str]) -> None:
        dead = op.ListDead(self.name, 0)
        found, expected = (store.execute(dead)[1] for store in (self.redis, self.memory))
        assert sorted(map(str, map(timeless, found))) == sorted(map(str, map(timeless, expected)))
        self.agree_on(op.ReplayDead(self.name, tuple(order_ids)))

    @invariant()
    def they_know_the_same_of_every_order(self) -> None:
        operation = op.ReadSubmitted(self.name, ALL)
        assert self.outcome(self.redis, operation) == self.outcome(self.memory, operation)


def test_submitted_orders_on_redis_are_answered_as_by_the_model(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(SubmittedAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class
