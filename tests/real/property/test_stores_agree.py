"""Redis answers as memory does, whatever is asked in whatever order.

Both see the same operations. Between any two of them pass 3 ms, on the server for real and in the model by its clock,
so that what lapses, and the order in which segments became free, is the same for both. Fields that tell times are left
out. Fencing tokens are times too: each store's are counted in the order in which they first appeared, and have to grow.
"""

import time
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final, Literal

from hypothesis import HealthCheck, settings, strategies as st
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
from segmented.models import Acquired, Busy, Granted, Held, Inspected, LedgerEntry, Order, OrderRecord
from segmented.models.pools import ScannedKey
from segmented.models.submitted import DeadOrder, OutboxState, Submitted, TakenOrders
from segmented.plans import run_sync
from segmented.protocol.wire import Dialect
from segmented.stock.audit import audit_plan
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import RedisStore

STEP_SECONDS: Final = 0.003
"""More than a millisecond, in which one server may count a lease as lapsed that the other still counts as living."""
LAPSED_AT_ONCE: Final = 1
LONG_MS: Final = 600_000
TOKENS_FROM: Final = 1_000
"""Fencing tokens below it are made up by a test."""
SETTINGS: Final = settings(
    max_examples=6,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # real milliseconds have to pass
)

ORDERS = st.sampled_from(["a", "b", "c", "d", "e", "f", "ü {%}", "a"])
QUANTITIES = st.sampled_from([1, 1, 2, 3, 7])
CHANGES = st.sampled_from(["r1", "r2", "r3"])
FENCE_PART: Final = 8
"""Where the fencing token is in a record's text."""
CUSTOMERS = st.sampled_from([None, None, "ann"])
HOLDERS = st.sampled_from(["h1", "h2"])
LIVES = st.sampled_from([LAPSED_AT_ONCE, LONG_MS])

_names = count()


def timeless(answer: object) -> object:
    """Leave out what tells a time; of a waiting time, keep whether there is one."""
    match answer:
        case TakenOrders() | Submitted() | OutboxState() | DeadOrder():
            return timeless_submitted(answer)
        case Granted() | Busy() | Held():
            return replace(answer, free_in_ms=None if answer.free_in_ms is None else min(answer.free_in_ms, 1))
        case OrderRecord():
            return replace(answer, hold_until_ms=None if answer.hold_until_ms is None else 0)
        case Acquired():
            return replace(answer, fencing_token=0)
        case tuple():
            return tuple(timeless(one) for one in answer)
        case LedgerEntry(kind="checkpoint"):
            return replace(answer, at_us=0, chain="", note=answer.note.rpartition(" ")[0])
        case Inspected():
            return replace(answer, hold_until_ms=None if answer.hold_until_ms is None else 0)
        case LedgerEntry():
            return replace(answer, at_us=0, chain="")
        case SegmentedError():
            return type(answer), str(answer)
    return answer


def timeless_submitted(answer: TakenOrders | Submitted | OutboxState | DeadOrder) -> object:
    match answer:
        case TakenOrders():
            return timeless(answer.orders), min(answer.free_in_ms or 0, 1), answer.epoch, answer.is_gated
        case Submitted():
            due, dead = (None if time is None else 0 for time in (answer.due_ms, answer.dead_at_ms))
            times = replace(answer, until_ms=min(1, answer.until_ms), due_ms=due, dead_at_ms=dead, read_at_ms=0)
            record = answer.record
            ends = None if record is None or record.hold_until_ms is None else 0
            return replace(times, record=record and replace(record, hold_until_ms=ends))
        case OutboxState():
            return replace(answer, oldest_due_ms=0)
        case DeadOrder():
            return replace(answer, at_ms=0)
        case _:
            return answer


def outcome(store: MemoryStore | RedisStore, operation: op.Operation[Any]) -> object:
    """Return the answer, or which error it was with what it says."""
    try:
        return timeless(store.execute(operation))
    except SegmentedError as error:
        return type(error), str(error)


@dataclass
class Tokens:
    """The fencing tokens of one store, in the order in which they first appeared."""

    known: list[int] = field(default_factory=list)

    def numbered(self, answer: Any) -> Any:  # noqa: ANN401  # any answer, and what is in it
        """Return an answer with the number of each token in its place."""
        match answer:
            case tuple():
                return tuple(self.numbered(one) for one in answer)
            case Inspected(raw=str() as raw):
                return replace(answer, raw=self._numbered_text(raw))
            case Submitted():
                return replace(answer, record=self.numbered(answer.record))
        if is_dataclass(answer) and not isinstance(answer, type) and getattr(answer, "fencing_token", None):
            return replace(answer, fencing_token=self._number_of(answer.fencing_token))  # type: ignore[attr-defined]  # it has one
        return answer

    def _numbered_text(self, raw: str) -> str:
        parts = raw.split("\t")
        if len(parts) > FENCE_PART and parts[FENCE_PART].isdigit():
            parts[FENCE_PART] = str(self._number_of(int(parts[FENCE_PART])))
        return "\t".join(parts)

    def _number_of(self, token: int) -> int:
        if token < TOKENS_FROM:
            return token
        if token not in self.known:
            assert token > max(self.known, default=0)
            self.known.append(token)
        return TOKENS_FROM + self.known.index(token)


class Agreement(RuleBasedStateMachine):
    """The model and the real store, asked the same."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__()
        self.redis = redis_store
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.name = f"agreed-{next(_names)}"
        self.known = {self.memory: Tokens(), self.redis: Tokens()}
        self.steps = 0

    def outcome(self, store: MemoryStore | RedisStore, operation: op.Operation[Any]) -> object:
        """Return the answer with its tokens numbered, or which error it was with what it says."""
        return self.known[store].numbered(outcome(store, operation))

    def agree_on(self, operation: op.Operation[Any]) -> None:
        """Ask both the same."""
        self.agree_on_each(operation, operation)

    def agree_on_each(self, operation: op.Operation[Any], redis_operation: op.Operation[Any]) -> None:
        """Ask each about its own texts."""
        expected = self.outcome(self.memory, operation)
        assert self.outcome(self.redis, redis_operation) == expected, operation
        self.steps += 1
        time.sleep(STEP_SECONDS)
        self.clock.advance(STEP_SECONDS)


class PoolsAgree(Agreement):
    """One pool."""

    @initialize(
        stock=st.sampled_from([1, 5, 12, 40]),
        segments=st.sampled_from([1, 2, 3, 12]),
        gated=st.booleans(),
        epoch=st.sampled_from([1, 9]),
        limit_per_customer=st.sampled_from([None, None, 3]),
    )
    def open(self, stock: int, segments: int, *, gated: bool, epoch: int, limit_per_customer: int | None) -> None:
        self.agree_on(op.ReadPool(self.name))
        self.agree_on(op.OpenPool(self.name, stock, segments, gated, epoch, limit_per_customer))

    @rule(order_id=ORDERS, quantity=QUANTITIES, customer=CUSTOMERS, hold_ms=LIVES, partial=st.booleans())
    def reserve(self, order_id: str, quantity: int, customer: str | None, hold_ms: int, *, partial: bool) -> None:
        self.agree_on(op.Reserve(self.name, Order(order_id, quantity, customer), hold_ms, partial))

    @rule(
        wanted=st.lists(st.tuples(ORDERS, QUANTITIES, CUSTOMERS), min_size=1, max_size=6),
        hold_ms=LIVES,
        partial=st.booleans(),
    )
    def reserve_many(self, wanted: list[tuple[str, int, str | None]], hold_ms: int, *, partial: bool) -> None:
        orders = tuple(Order(*order) for order in wanted)
        self.agree_on(op.ReserveMany(self.name, orders, hold_ms, partial))

    @rule(
        order_id=ORDERS,
        quantity=QUANTITIES,
        customer=CUSTOMERS,
        holder=HOLDERS,
        ttl_ms=LIVES,
        hold_ms=LIVES,
        keeps=st.booleans(),
        partial=st.booleans(),
    )
    def grant(
        self,
        order_id: str,
        quantity: int,
        customer: str | None,
        holder: str,
        ttl_ms: int,
        hold_ms: int,
        *,
        keeps: bool,
        partial: bool,
    ) -> None:
        order, holder_id = Order(order_id, quantity, customer), f"{holder} of {order_id}"
        self.agree_on(op.Grant(self.name, order, holder_id, ttl_ms, hold_ms, keeps, partial))

    @rule(count=st.integers(min_value=15, max_value=18))
    def reserve_many_that_lapse_at_once(self, count: int) -> None:
        for _ in range(count):
            self.agree_on(op.Reserve(self.name, Order(f"late{next(_names)}", 1, "bob"), LAPSED_AT_ONCE))

    @rule(order_id=ORDERS, holder=HOLDERS, ttl_ms=LIVES)
    def renew(self, order_id: str, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewGrant(self.name, order_id, f"{holder} of {order_id}", ttl_ms, ttl_ms))

    @rule(order_id=ORDERS, holder=st.none() | HOLDERS, stored=st.booleans())
    def confirm(self, order_id: str, holder: str | None, *, stored: bool) -> None:
        self.agree_on(op.Confirm(self.name, order_id, holder and f"{holder} of {order_id}", stored))

    @rule(order_id=ORDERS, holder=st.none() | HOLDERS, voided=st.booleans(), unheard=st.booleans())
    def cancel(self, order_id: str, holder: str | None, *, voided: bool, unheard: bool) -> None:
        self.agree_on(op.Cancel(self.name, order_id, holder and f"{holder} of {order_id}", voided, unheard=unheard))

    @rule(order_id=ORDERS, voided=st.booleans())
    def expire(self, order_id: str, *, voided: bool) -> None:
        self.agree_on(op.Expire(self.name, order_id, decided=voided))

    @rule(
        state=st.sampled_from(["confirmed", "cancelled", "expired"]),
        order_ids=st.lists(ORDERS, min_size=1, max_size=5),
        decided=st.booleans(),
        mode=st.sampled_from(["", "idle", "unheard"]),
    )
    def settle_many(
        self, state: Literal["confirmed", "cancelled", "expired"], order_ids: list[str], *, decided: bool, mode: str
    ) -> None:
        is_unheard = mode == "unheard" and state == "cancelled"
        self.agree_on(
            op.SettleMany(self.name, state, tuple(order_ids), decided, idle=mode == "idle", unheard=is_unheard)
        )

    @rule(limit=st.sampled_from([1, 3, 100]))
    def expire_due(self, limit: int) -> None:
        self.agree_on(op.ExpireDue(self.name, limit))

    @rule(change_id=CHANGES, units=QUANTITIES)
    def restock(self, change_id: str, units: int) -> None:
        self.agree_on(op.Restock(self.name, change_id, units))

    @rule(change_id=CHANGES, units=QUANTITIES)
    def withdraw(self, change_id: str, units: int) -> None:
        self.agree_on(op.Withdraw(self.name, change_id, units))

    @rule(segments=st.sampled_from([1, 2, 5, 40]))
    def resize(self, segments: int) -> None:
        self.agree_on(op.Resize(self.name, segments))

    @precondition(lambda self: self.steps > 20)
    @rule()
    def close(self) -> None:
        self.agree_on(op.ClosePool(self.name))

    @rule(limit=st.sampled_from([1, 100]))
    def list_due(self, limit: int) -> None:
        self.agree_on(op.ListDue(self.name, limit))

    @rule(order_ids=st.lists(ORDERS, min_size=1, max_size=4))
    def read_orders(self, order_ids: list[str]) -> None:
        self.agree_on(op.ReadOrders(self.name, tuple(order_ids)))

    @rule(after=st.integers(min_value=0, max_value=30), limit=st.integers(min_value=1, max_value=5))
    def read_ledger(self, after: int, limit: int) -> None:
        self.agree_on(op.ReadLedger(self.name, after, limit))

    @rule(keep=st.sampled_from([0, 3, 12]), relayed_only=st.booleans(), sequence=st.integers(-1, 30))
    def trim_ledger(self, keep: int, *, relayed_only: bool, sequence: int) -> None:
        note = op.NoteRelayed(self.name, (1, sequence) if sequence >= 0 else None)
        self.agree_on(note if relayed_only else op.ReadLedgerStart(self.name))
        self.agree_on(op.TrimLedger(self.name, keep, relayed_only))

    @rule(order_ids=st.lists(ORDERS, min_size=1, max_size=4))
    def inspect(self, order_ids: list[str]) -> None:
        self.agree_on(op.InspectOrders(self.name, tuple(order_ids)))
        self.agree_on(op.ReadCustomers(self.name, ("ann", "bob", "nobody")))
        self.agree_on(op.MendLedger(self.name))

    @rule()
    def scan(self) -> None:
        keys: tuple[ScannedKey, ...] = ("orders", "holds", "customers", "changes")
        for scan in [op.ScanKey(self.name, key, 0) for key in keys]:
            found, expected = (dict(store.execute(scan)[1]) for store in (self.redis, self.memory))
            assert found.keys() == expected.keys(), scan
            if scan.key == "changes":  # ends of holds, and tokens in records, are by two clocks
                assert found == expected, scan

    @rule(name=st.sampled_from(["available", "reserved", "confirmed", "restocked"]), after=st.integers(0, 3))
    def spoil_a_total_and_mend_it(self, name: str, after: int) -> None:
        state = self.memory.execute(op.ReadPool(self.name))
        if (name, 0) in {("confirmed", state.order_count), ("reserved", state.reserved)}:
            return  # units without any order: the pool would be frozen, since it looks like a lost key
        self.agree_on(op.MendNumber(self.name, "total", name, state.sequence, getattr(state, name) + 2))
        for units in (getattr(state, name), getattr(state, name)):
            self.agree_on(op.MendNumber(self.name, "total", name, state.sequence + after % 2, units))

    @rule(units=st.integers(0, 9))
    def spoil_a_segment_and_mend_it(self, units: int) -> None:
        state = self.memory.execute(op.ReadPool(self.name))
        for expected in (units, state.stock[0]):
            self.agree_on(op.MendNumber(self.name, "segment", "0", state.sequence, expected))

    @rule(order_id=ORDERS, wanted=st.sampled_from([None, "c\t1\t0\t1", "r\t2\t0\t1\t0:1,1:1\tann\t3"]))
    def spoil_a_record_and_mend_it(self, order_id: str, wanted: str | None) -> None:
        look = op.InspectOrders(self.name, (order_id,))
        raw, redis_raw = (store.execute(look)[0].raw for store in (self.memory, self.redis))
        until = None if raw is None else self.memory.execute(op.ReadOrders(self.name, (order_id,)))[0]
        state = self.memory.execute(op.ReadPool(self.name))
        if until is not None and (until.state == "reserved" or state.order_count == 1):
            return  # its new hold would begin at another millisecond, or the pool would be frozen
        for is_back in (False, True, False, True):
            pairs = [(wanted, found) if is_back else (found, wanted) for found in (raw, redis_raw)]
            at = self.memory.execute(op.ReadPool(self.name)).sequence
            for sequence in (at - 1, at):
                mends = [op.MendRecord(self.name, "order", order_id, sequence, *pair, LONG_MS) for pair in pairs]
                self.agree_on_each(*mends)
            self.agree_on(look)

    @invariant()
    def their_states_are_equal(self) -> None:
        assert self.outcome(self.redis, op.ReadPool(self.name)) == self.outcome(self.memory, op.ReadPool(self.name))

    def teardown(self) -> None:
        """Compare all they have, and audit both."""
        self.agree_on(op.ReadLedger(self.name, 0, 1_000))
        for store in (self.redis, self.memory):
            report, _ = run_sync(audit_plan(self.name), store)
            assert report.drift == ()
            assert (report.refused_wrongly, report.oversold) == (0, 0)


class LocksAgree(Agreement):
    """One named lock; its tokens are the servers' times, so of them only their growth is compared."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.tokens: dict[MemoryStore | RedisStore, int] = {self.memory: 0, self.redis: 0}

    @rule(holder=HOLDERS, ttl_ms=LIVES)
    def acquire(self, holder: str, ttl_ms: int) -> None:
        answers = {store: store.execute(op.AcquireLock(self.name, holder, ttl_ms)) for store in self.tokens}
        assert timeless(answers[self.redis]) == timeless(answers[self.memory])
        for store, answer in answers.items():
            if isinstance(answer, Acquired):
                if answer.replay:
                    assert answer.fencing_token == self.tokens[store]
                else:
                    assert answer.fencing_token > self.tokens[store]
                self.tokens[store] = answer.fencing_token
        self.agree_on(op.RenewLock(self.name, "nobody", 1))

    @rule(holder=HOLDERS, ttl_ms=LIVES)
    def renew(self, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewLock(self.name, holder, ttl_ms))

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self.agree_on(op.ReleaseLock(self.name, holder))


def test_a_pool_on_redis_answers_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(PoolsAgree, store), settings=SETTINGS)  # type: ignore[arg-type]  # it calls it, as it would a class


def test_a_lock_on_redis_answers_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(LocksAgree, store), settings=settings(SETTINGS, max_examples=4))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_the_comparison_leaves_out_nothing_but_times() -> None:
    told = {field.name for kind in (Granted, Busy, Held, OrderRecord) for field in fields(kind)}
    assert {name for name in told if name.endswith(("_ms", "_us"))} <= {"free_in_ms", "hold_until_ms", "at_us"}
