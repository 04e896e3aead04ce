"""Shards on Redis answer as those of the model do, and no unit is lost or doubled between them, however messages come.

Three shards exchange units: every message may come twice, late, or out of turn. What a sender may ask is asked of both
stores; what nobody who follows the protocol would say (that something has arrived which has not) is not said.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hypothesis import settings, strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.models import Order, PoolState, Received, Shard, ShardDirectory, ShardFound, Transfer
from segmented.plans import run_sync
from segmented.protocol.wire import Dialect
from segmented.stock.audit import audit_plan
from segmented.stock.sharded.audit import sharded_audit_plan
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LAPSED_AT_ONCE, LONG_MS, SETTINGS, Agreement, outcome

if TYPE_CHECKING:
    from segmented.stores.memory import MemoryStore

SHARDS: Final = 3
PLACES = st.integers(0, SHARDS - 1)
OTHERS = st.integers(1, SHARDS - 1)
UNITS = st.sampled_from([0, 1, 2, 3, 7, 50])
ORDERS = st.sampled_from([f"o{index}" for index in range(6)])
HOLDS = st.sampled_from([LAPSED_AT_ONCE, LONG_MS])

Place = tuple[int, int]
"""Source and target."""


class ShardsAgree(Agreement):
    """Three shards of one pool, in both stores."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.shards = tuple(Shard(self.name, number, "a") for number in range(SHARDS))
        self.sent: dict[Place, list[Transfer]] = {}
        self.arrived: dict[Place, int] = {}
        self.opened = self.restocked = self.withdrawn = 0
        self.free: dict[tuple[object, int], int] = {}
        self.has_grown: set[tuple[object, int]] = set()
        self.increases: dict[tuple[object, int], int] = {}

    @initialize(
        stocks=st.tuples(*[st.sampled_from([1, 4, 12])] * SHARDS),
        segments=st.tuples(*[st.sampled_from([1, 2, 5])] * SHARDS),
    )
    def open(self, stocks: tuple[int, ...], segments: tuple[int, ...]) -> None:
        self.agree_on(op.LookAtShard(self.shards[0]))
        self.agree_on(op.ReceiveUnits(self.shards[0], 1, 1, 1, epoch=1))
        for shard, stock, count in zip(self.shards, stocks, segments, strict=True):
            self.agree_on(op.OpenPool(shard, stock, count, gated=False))
            self.opened += stock

    # --- between shards ---

    @rule(source=PLACES, step=OTHERS, units=UNITS)
    def send(self, source: int, step: int, units: int) -> None:
        place = source, (source + step) % SHARDS
        operation = op.SendUnits(self.shards[source], place[1], units)
        self.agree_on(operation)
        found = [one for one in self.state(source).transfers if (one.kind, one.other) == ("away", place[1])]
        known = self.sent.setdefault(place, [])
        if found and found[0] not in known:
            assert found[0].number == len(known) + 1
            (total,) = [
                one.units for one in self.state(source).transfers if (one.kind, one.other) == ("sent", place[1])
            ]
            known.append(replace(found[0], sent=total))

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from([place for place, sent in self.sent.items() if sent]), label="place")
        self._receive(place, data.draw(st.sampled_from(self.sent[place]), label="transfer"))

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def receive_the_last(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from([place for place, sent in self.sent.items() if sent]), label="place")
        self._receive(place, self.sent[place][-1])

    def _receive(self, place: Place, transfer: Transfer) -> None:
        operation = op.ReceiveUnits(self.shards[place[1]], place[0], transfer.number, transfer.sent, epoch=1)
        self.agree_on(operation)
        self.arrived[place] = max(self.arrived.get(place, 0), transfer.number)
        assert outcome(self.memory, operation) == Received(transfer.number, 0)
        assert outcome(self.redis, operation) == Received(transfer.number, 0)

    @rule(source=PLACES, step=OTHERS, units=UNITS)
    def move(self, source: int, step: int, units: int) -> None:
        """Make a whole transfer, so that there are old numbers to come late."""
        place = source, (source + step) % SHARDS
        self.send(source, step, units)
        if self.sent[place]:
            self._receive(place, self.sent[place][-1])
            self.agree_on(op.AcknowledgeUnits(self.shards[source], place[1], self.arrived[place], epoch=1))

    @precondition(lambda self: any(self.arrived.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.arrived)), label="place")
        number = data.draw(st.integers(1, self.arrived[place]), label="number")
        self.agree_on(op.AcknowledgeUnits(self.shards[place[0]], place[1], number, epoch=1))

    @rule(number=PLACES)
    def look(self, number: int) -> None:
        operation = op.LookAtShard(self.shards[number])
        self.agree_on(operation)
        for store in (self.redis, self.memory):
            found = store.execute(operation)
            assert isinstance(found, ShardFound)
            before = self.increases.get((store, number), 0)
            assert found.increases >= before + ((store, number) in self.has_grown)
            self.increases[store, number] = found.increases
            self.free[store, number] = found.available
            self.has_grown.discard((store, number))

    # --- within one ---

    @rule(number=PLACES, order_id=ORDERS, units=st.sampled_from([1, 2, 5]), hold_ms=HOLDS, partial=st.booleans())
    def reserve(self, number: int, order_id: str, units: int, hold_ms: int, *, partial: bool) -> None:
        self.agree_on(op.Reserve(self.shards[number], Order(order_id, units), hold_ms, partial))

    @rule(number=PLACES, order_id=ORDERS, confirms=st.booleans())
    def settle(self, number: int, order_id: str, *, confirms: bool) -> None:
        self.agree_on((op.Confirm if confirms else op.Cancel)(self.shards[number], order_id))

    @rule(number=PLACES, count=st.integers(17, 20))
    def let_many_lapse(self, number: int, count: int) -> None:
        orders = tuple(Order(f"late{self.steps}.{index}", 1) for index in range(count))
        self.agree_on(op.ReserveMany(self.shards[number], orders, LAPSED_AT_ONCE))

    @rule(number=PLACES, change_id=st.sampled_from(["r1", "r2"]), units=st.sampled_from([1, 5]))
    def restock(self, number: int, change_id: str, units: int) -> None:
        before = self.state(number).restocked
        self.agree_on(op.Restock(self.shards[number], change_id, units))
        self.restocked += self.state(number).restocked - before

    @rule(number=PLACES, change_id=st.sampled_from(["w1", "w2"]), units=st.sampled_from([1, 5]))
    def withdraw(self, number: int, change_id: str, units: int) -> None:
        before = self.state(number).withdrawn
        self.agree_on(op.Withdraw(self.shards[number], change_id, units))
        self.withdrawn += self.state(number).withdrawn - before

    @rule(number=PLACES, segments=st.sampled_from([1, 2, 5, 9]))
    def resize(self, number: int, segments: int) -> None:
        self.agree_on(op.Resize(self.shards[number], segments))

    @rule(number=PLACES, keep=st.sampled_from([0, 3]))
    def trim(self, number: int, keep: int) -> None:
        self.agree_on(op.TrimLedger(self.shards[number], keep))

    @rule(number=PLACES, name=st.sampled_from(["available", "sent", "received"]))
    def spoil_a_total_and_mend_it(self, number: int, name: str) -> None:
        shard, state = self.shards[number], self.state(number)
        for expected in (getattr(state, name) + 2, getattr(state, name)):
            at = self.state(number).sequence
            self.agree_on(op.MendNumber(shard, "total", name, at, expected))

    @precondition(lambda self: self.steps > 30)
    @rule(number=PLACES)
    def close(self, number: int) -> None:
        self.agree_on(op.ClosePool(self.shards[number]))

    # --- what holds all the time ---

    def state(self, number: int) -> PoolState:
        return self.memory.execute(op.ReadPool(self.shards[number]))

    @invariant()
    def their_states_are_equal(self) -> None:
        for number, shard in enumerate(self.shards):
            assert outcome(self.redis, op.ReadPool(shard)) == outcome(self.memory, op.ReadPool(shard))
            if not self.opened:
                continue
            for store in (self.redis, self.memory):
                free = store.execute(op.ReadPool(shard)).available
                if free > self.free.get((store, number), free):
                    self.has_grown.add((store, number))
                self.free[store, number] = free

    @invariant()
    def no_unit_is_lost_or_doubled(self) -> None:
        if not self.opened:
            return
        for store in (self.redis, self.memory):
            states = [store.execute(op.ReadPool(shard)) for shard in self.shards]
            assert sum(state.stocked for state in states) + on_the_way(states) == (
                self.opened + self.restocked - self.withdrawn
            )
            assert all(state.stocked == state.available + state.reserved + state.confirmed for state in states)

    def teardown(self) -> None:
        """Compare the ledgers, and audit both."""
        directory = ShardDirectory(self.name, ("a",) * SHARDS, self.opened, SHARDS, 1, None, is_open=True)
        for shard in self.shards:
            self.agree_on(op.ReadLedger(shard, 0, 1_000))
        for store in (self.redis, self.memory):
            check_books(store, directory, self.opened)


def on_the_way(states: list[PoolState]) -> int:
    """Return the units that have left one shard and not come to another."""
    received = {
        (one.other, target): one.number
        for target, state in enumerate(states)
        for one in state.transfers
        if one.kind == "received"
    }
    return sum(
        one.units
        for source, state in enumerate(states)
        for one in state.transfers
        if one.kind == "away" and received.get((source, one.other), 0) < one.number
    )


def check_books(store: MemoryStore | RedisStore, directory: ShardDirectory, opened: int) -> None:
    """Audit each shard, then all of them."""
    if not opened:
        return
    for shard in directory.shards:
        report, _ = run_sync(audit_plan(shard), store)
        assert report.drift == ()
    found: Any = run_sync(sharded_audit_plan(directory), store)
    assert (found.drift, found.is_clean, found.refused_wrongly, found.oversold) == ((), True, 0, 0)


def test_shards_on_redis_answer_as_the_model_does_and_conserve_units(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(ShardsAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class
