"""The scripts answer what an oracle says that knows only units, orders, holds, limits, leases and tokens.

They run in memory, on the small Redis; `test_stores_agree` compares that with a server.
"""

from itertools import count
from typing import Any, Final, Literal

from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import SegmentedError
from segmented.models import Acquired, Granted, Granted as Grant, Order
from segmented.plans import run_sync
from segmented.stock.audit import audit_plan
from segmented.stores.memory import MemoryStore
from tests.support.oracle import LockOracle, PoolOracle, Verdict, verdict

SETTINGS: Final = settings(max_examples=40, stateful_step_count=40, deadline=None)
SKU: Final = "judged"
ORDERS = st.sampled_from(["a", "b", "c", "d", "e", "f", "ü {%}", "a"])
QUANTITIES = st.sampled_from([1, 1, 2, 3, 7])
CUSTOMERS = st.sampled_from([None, "ann"])
HOLDERS = st.sampled_from(["h1", "h2"])
LIVES = st.sampled_from([1, 5, 60_000])
CHANGES = st.sampled_from(["r1", "r2", "r3"])
STATES = st.sampled_from(["confirmed", "cancelled", "expired"])
State = Literal["confirmed", "cancelled", "expired"]


class Judged(RuleBasedStateMachine):
    """A store in memory whose every answer is compared with a verdict."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)

    def ask(self, operation: op.Operation[Any], expected: Verdict) -> Any:  # noqa: ANN401  # the answer
        try:
            answer = self.store.execute(operation)
        except SegmentedError as error:
            answer = error
        assert verdict(answer) == expected, (operation, answer)
        return answer


class PoolIsJudged(Judged):
    """One pool."""

    oracle: PoolOracle

    @initialize(
        stock=st.sampled_from([1, 5, 12]),
        segments=st.sampled_from([1, 2, 3, 12]),
        limit=st.sampled_from([None, None, 3]),
    )
    def open(self, stock: int, segments: int, limit: int | None) -> None:
        self.store.execute(op.OpenPool(SKU, stock, segments, gated=False, limit_per_customer=limit))
        self.oracle = PoolOracle(stock, segments, limit)

    @rule(ms=st.sampled_from([1, 4, 5, 100]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms / 1_000)
        self.oracle.now += ms

    @rule(order_id=ORDERS, quantity=QUANTITIES, customer=CUSTOMERS, hold_ms=LIVES, partial=st.booleans())
    def reserve(self, order_id: str, quantity: int, customer: str | None, hold_ms: int, *, partial: bool) -> None:
        order = Order(order_id, quantity, customer)
        self.ask(op.Reserve(SKU, order, hold_ms, partial), self.oracle.reserve(order, hold_ms, partial=partial))

    @rule(wanted=st.lists(st.tuples(ORDERS, QUANTITIES, CUSTOMERS), min_size=1, max_size=6), hold_ms=LIVES)
    def reserve_many(self, wanted: list[tuple[str, int, str | None]], hold_ms: int) -> None:
        orders = tuple(Order(*order) for order in wanted)
        answers = self.store.execute(op.ReserveMany(SKU, orders, hold_ms))
        expected = [self.oracle.reserve(order, hold_ms, partial=False) for order in orders]
        assert [verdict(one)[0] for one in answers] == [one[0] for one in expected], orders
        taken = [one for one in expected if one[0] == "Reserved"]
        assert [verdict(one) for one in answers if verdict(one)[0] == "Reserved"] == taken

    @rule(
        order=st.builds(Order, ORDERS, QUANTITIES, CUSTOMERS),
        holder=HOLDERS,
        ttl_ms=LIVES,
        keeps=st.booleans(),
        partial=st.booleans(),
    )
    def grant(self, order: Order, holder: str, ttl_ms: int, *, keeps: bool, partial: bool) -> None:
        holder_id = f"{holder} of {order.order_id}"
        expected = self.oracle.grant(order, holder_id, ttl_ms, ttl_ms, keeps=keeps, partial=partial)
        answer: Grant | object = self.ask(op.Grant(SKU, order, holder_id, ttl_ms, ttl_ms, keeps, partial), expected)
        if isinstance(answer, Granted):
            self.oracle.note_grant(answer, holder_id, ttl_ms)

    @rule(order_id=ORDERS, holder=HOLDERS, ttl_ms=LIVES)
    def renew(self, order_id: str, holder: str, ttl_ms: int) -> None:
        holder_id = f"{holder} of {order_id}"
        expected = self.oracle.renew(order_id, holder_id, ttl_ms, ttl_ms)
        self.ask(op.RenewGrant(SKU, order_id, holder_id, ttl_ms, ttl_ms), expected)

    @rule(order_id=ORDERS, holder=st.none() | HOLDERS)
    def confirm(self, order_id: str, holder: str | None) -> None:
        holder_id = holder and f"{holder} of {order_id}"
        self.ask(op.Confirm(SKU, order_id, holder_id), self.oracle.settle(order_id, "confirmed", holder_id))

    @rule(order_id=ORDERS, holder=st.none() | HOLDERS, unheard=st.booleans())
    def cancel(self, order_id: str, holder: str | None, *, unheard: bool) -> None:
        holder_id = holder and f"{holder} of {order_id}"
        expected = self.oracle.settle(order_id, "cancelled", holder_id, unheard=unheard)
        self.ask(op.Cancel(SKU, order_id, holder_id, unheard=unheard), expected)

    @rule(order_id=ORDERS)
    def expire(self, order_id: str) -> None:
        self.ask(op.Expire(SKU, order_id), self.oracle.settle(order_id, "expired"))

    @rule(state=STATES, order_ids=st.lists(ORDERS, min_size=1, max_size=5, unique=True))
    def settle_many(self, state: State, order_ids: list[str]) -> None:
        answers = self.store.execute(op.SettleMany(SKU, state, tuple(order_ids)))
        assert [verdict(one) for one in answers] == [self.oracle.settle(one, state) for one in order_ids]

    @rule()
    def expire_due(self) -> None:
        settled, is_more_due = self.store.execute(op.ExpireDue(SKU, 100))
        assert not is_more_due
        assert sorted(one.order_id for one in settled) == sorted(self.oracle.expire_due())

    @rule(kind=st.sampled_from(["restock", "withdraw"]), change_id=CHANGES, units=QUANTITIES)
    def change(self, kind: Literal["restock", "withdraw"], change_id: str, units: int) -> None:
        operation = op.Restock if kind == "restock" else op.Withdraw
        self.ask(operation(SKU, change_id, units), self.oracle.change(kind, change_id, units))

    @rule(segments=st.sampled_from([1, 2, 5, 40]))
    def resize(self, segments: int) -> None:
        self.store.execute(op.Resize(SKU, segments))
        self.oracle.segments = segments

    @precondition(lambda self: len(self.oracle.orders) > 5)
    @rule()
    def close(self) -> None:
        self.store.execute(op.ClosePool(SKU))
        self.oracle.is_closed = True

    @invariant()
    def the_numbers_are_the_oracles(self) -> None:
        state = self.store.execute(op.ReadPool(SKU))
        told = (state.available, state.reserved, state.confirmed, sum(state.stock), state.stocked)
        oracle = self.oracle
        assert told == (oracle.available, oracle.reserved, oracle.confirmed, oracle.available, oracle.stock)

    def teardown(self) -> None:
        if hasattr(self, "oracle"):
            report, _ = run_sync(audit_plan(SKU), self.store)
            assert (report.drift, report.refused_wrongly, report.oversold) == ((), 0, 0)


class LockIsJudged(Judged):
    """One named lock, or one semaphore."""

    names = count()

    @initialize(permits=st.sampled_from([1, 1, 2]))
    def begin(self, permits: int) -> None:
        self.oracle = LockOracle(permits)
        self.is_semaphore = permits > 1

    @rule(ms=st.sampled_from([1, 4, 5, 100]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms / 1_000)
        self.oracle.now += ms

    @rule(holder=st.sampled_from(["h1", "h2", "h3"]), ttl_ms=LIVES)
    def acquire(self, holder: str, ttl_ms: int) -> None:
        operation: op.Operation[Any] = op.AcquireLock(SKU, holder, ttl_ms)
        if self.is_semaphore:
            operation = op.AcquirePermit(SKU, holder, ttl_ms, self.oracle.permits)
        answer = self.ask(operation, self.oracle.acquire(holder, ttl_ms))
        if isinstance(answer, Acquired):
            self.oracle.note_token(answer.fencing_token, is_new=self.is_semaphore or not answer.replay)

    @rule(holder=st.sampled_from(["h1", "h2", "h3"]), ttl_ms=LIVES)
    def renew(self, holder: str, ttl_ms: int) -> None:
        renewing = op.RenewPermit if self.is_semaphore else op.RenewLock
        self.ask(renewing(SKU, holder, ttl_ms), self.oracle.renew(holder, ttl_ms))

    @rule(holder=st.sampled_from(["h1", "h2", "h3"]))
    def release(self, holder: str) -> None:
        releasing = op.ReleasePermit if self.is_semaphore else op.ReleaseLock
        self.ask(releasing(SKU, holder), self.oracle.release(holder))


def test_a_pool_answers_what_its_units_orders_and_leases_say() -> None:
    run_state_machine_as_test(PoolIsJudged, settings=SETTINGS)


def test_a_lock_answers_what_its_leases_say() -> None:
    run_state_machine_as_test(LockIsJudged, settings=SETTINGS)
