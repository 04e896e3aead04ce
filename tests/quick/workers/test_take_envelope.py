"""Envelopes of submitted orders, in memory and with an order database: what a worker does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import PoolFrozen
from segmented.models.submitted import Swept
from segmented.orders import rebuild
from segmented.orders.envelope_report import EnvelopeReport
from segmented.orders.work_terms import Decline, TryLater
from segmented.plans import run_sync
from segmented.stock.outbox import dead_plan
from tests.support.dying import Died

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented import MemoryStore
    from segmented.clock import ManualClock
    from segmented.models.submitted import BegunOrder
    from segmented.orders import Gate


from tests.support.workers.envelope_till import SKU, EnvelopeSetup, opened

pytestmark = pytest.mark.usefixtures("patient_attempts")


def no_address(order: BegunOrder) -> None:
    """Fail for one order of each envelope."""
    if order.order.order_id == "o042":
        message = "no\tsuch address \udcff"
        raise ValueError(message)


# --- what it does ---


def test_an_envelope_of_a_hundred_is_decided_and_comes_again_as_a_repeat(setup: EnvelopeSetup) -> None:
    ids = setup.submit(100)
    report = setup.take(ids)
    assert [one.order_id for one in report.settled] == ids
    assert {one.state for one in report.settled} == {"confirmed"}
    again = setup.take(ids)
    assert sorted(one.order_id for one in again.settled) == ids
    assert {(one.state, one.replay) for one in again.settled} == {("confirmed", True)}
    assert (report.put_off, report.in_hand, report.alone, report.dead, report.unknown) == ({}, [], [], [], [])
    assert setup.waiting() == 0
    setup.check(confirmed=100, available=100)


def test_a_step_is_called_once_with_each_order_before_it_is_decided(setup: EnvelopeSetup) -> None:
    seen: list[tuple[str, int, str]] = []

    def step(order: BegunOrder) -> None:
        seen.append((order.order.order_id, order.begun, setup.found(order.order.order_id).state))

    ids = setup.submit(10)
    setup.take(ids, step=step)
    assert seen == [(order_id, 1, "reserved") for order_id in ids]
    setup.check(confirmed=10, available=190)


def test_more_than_there_is_sells_out_exactly(setup: EnvelopeSetup) -> None:
    ids = setup.submit(100, quantity=3)
    for first in range(0, 100, 20):
        setup.take(ids[first : first + 20])
    sold = setup.states(ids).get("confirmed")
    assert sold == 66
    assert setup.waiting() == 0
    setup.check(confirmed=198, available=2)


def test_an_id_that_comes_twice_in_an_envelope_is_settled_once(setup: EnvelopeSetup) -> None:
    (first,) = setup.submit(1)
    assert [one.order_id for one in setup.take([first, first]).settled] == [first]
    setup.check(confirmed=1, available=199)


def test_ids_that_nobody_submitted_are_told(setup: EnvelopeSetup) -> None:
    ids = setup.submit(1)
    report = setup.take([*ids, "nobody"])
    assert report.unknown == ["nobody"]
    assert len(report.settled) == 1


# --- one bad order ---


def test_an_order_whose_step_raises_is_put_off_and_the_others_are_decided(setup: EnvelopeSetup) -> None:
    ids = setup.submit(100)
    report = setup.take(ids, step=no_address)
    assert len(report.settled) == 99
    assert report.put_off == {"o042": "ValueError: no such address ?"}
    found = setup.found("o042")
    assert (found.state, found.begun, found.reason) == ("reserved", 1, "ValueError: no such address ?")
    assert setup.states(ids) == {"confirmed": 99, "reserved": 1}
    assert setup.take(["o042"]).settled[0].state == "confirmed"
    setup.check(confirmed=100, available=100)


def test_an_order_whose_step_always_raises_is_dead_after_5_tries_and_sold_on_replay(setup: EnvelopeSetup) -> None:
    setup.submit(50)
    for _ in range(5):
        assert "o042" in setup.take(["o042"], step=no_address).put_off
    assert setup.take(["o042"], step=no_address).dead == ["o042"]
    assert setup.found("o042").state == "dead"
    setup.pool.store.execute(op.ReplayDead(SKU, ("o042",)))
    assert setup.take(["o042"]).settled[0].state == "confirmed"


def test_an_order_that_its_step_declines_is_void_and_its_units_are_free(setup: EnvelopeSetup) -> None:
    def pay(order: BegunOrder) -> None:
        if order.order.order_id == "o001":
            message = "card refused"
            raise Decline(message)

    ids = setup.submit(3)
    report = setup.take(ids, step=pay)
    assert report.declined == {"o001": "card refused"}
    assert {one.order_id: one.state for one in report.settled} == {
        "o000": "confirmed",
        "o001": "cancelled",
        "o002": "confirmed",
    }
    assert (report.put_off, setup.waiting(), setup.take(["o001"]).settled[0].state) == ({}, 0, "cancelled")
    setup.check(confirmed=2, available=198)


def test_a_decline_by_a_worker_that_has_lost_the_order_leaves_it_to_the_other(
    setup: EnvelopeSetup, clock: ManualClock
) -> None:
    def outlasted(_: BegunOrder) -> None:
        clock.advance(120)
        assert [one.state for one in setup.take(["o000"]).settled] == ["confirmed"]
        message = "card refused"
        raise Decline(message)

    setup.submit(1)
    report = setup.take(["o000"], step=outlasted)
    assert (report.settled, report.declined, report.in_hand) == ([], {}, ["o000"])
    setup.check(confirmed=1, available=199)


def test_a_step_that_says_later_does_not_count(setup: EnvelopeSetup, clock: ManualClock) -> None:
    def later(_: BegunOrder) -> None:
        message = "the bank is closed"
        raise TryLater(message, seconds=1)

    setup.submit(2)
    for _ in range(7):
        assert setup.take(["o000"], step=later).put_off == {"o000": "the bank is closed"}
    found = setup.found("o000")
    assert (found.state, found.begun, found.reason) == ("reserved", 0, "the bank is closed")
    clock.advance(2)
    swept = setup.pool.store.execute(op.SweepOutbox(SKU, 1_000, None, 1, 1, 600_000, 5))
    assert isinstance(swept, Swept)
    assert [order_id for order_id, _ in swept.due] == ["o000"]
    assert setup.take(["o000", "o001"]).settled[0].state == "confirmed"


def test_a_time_to_try_later_that_is_none_is_the_failure_of_its_order_alone(setup: EnvelopeSetup) -> None:
    def later(order: BegunOrder) -> None:
        if order.order.order_id == "o001":
            message = "tomorrow"
            raise TryLater(message, seconds=-1.0)

    report = setup.take(setup.submit(3), step=later)
    assert len(report.settled) == 2
    assert report.put_off["o001"].startswith("InvalidInput: seconds of -1.0 s is not a duration")


def test_an_order_that_kills_its_workers_is_tried_alone_and_then_buried(
    setup: EnvelopeSetup, clock: ManualClock
) -> None:
    ids = setup.submit(30)
    killed: list[int] = []

    def poison(order: BegunOrder) -> None:
        if order.order.order_id == "o007":
            killed.append(order.begun)
            raise Died

    def deliver(envelope: Sequence[str]) -> EnvelopeReport | None:
        try:
            return setup.take(envelope, step=poison)
        except Died:
            clock.advance(1_000)
            return None

    assert deliver(ids) is None
    assert deliver(ids) == EnvelopeReport(alone=ids)
    for first in (0, 10, 20):
        deliver(ids[first : first + 10])
    assert setup.states(ids) == {"confirmed": 20, "reserved": 10}
    assert deliver(ids[:10]) == EnvelopeReport(alone=ids[:10])
    for order_id in ids[:10]:
        deliver([order_id])
    assert setup.states(ids) == {"confirmed": 29, "reserved": 1}
    while setup.found("o007").state != "dead":
        deliver(["o007"])
    assert killed == [1, 2, 3, 4, 5]
    assert [one.order_id for one in run_sync(dead_plan(SKU), setup.pool.store)] == ["o007"]


def test_an_order_stored_with_other_content_is_cancelled_and_the_others_are_sold(gated_till: EnvelopeSetup) -> None:
    gate = gated_till.gate
    assert gate is not None
    ids = gated_till.submit(100)
    gate.confirm(order_id="o042", sku=SKU, segment=0, quantity=2, epoch=1)
    report = gated_till.take(ids)
    assert len(report.settled) == 100
    assert gated_till.states(ids) == {"cancelled": 1, "confirmed": 99}
    assert gated_till.found("o042").state == "cancelled"
    assert gated_till.waiting() == 0
    assert gated_till.pool.audit().is_clean
    assert gate.confirmed_units(SKU) == 101


def test_an_order_that_the_database_has_voided_is_cancelled_and_the_others_are_sold(gated_till: EnvelopeSetup) -> None:
    gate = gated_till.gate
    assert gate is not None
    ids = gated_till.submit(100)
    gate.void(order_id="o042", sku=SKU, quantity=1)
    report = gated_till.take(ids)
    assert [one.state for one in report.settled if one.order_id == "o042"] == ["cancelled"]
    assert gated_till.states(ids) == {"cancelled": 1, "confirmed": 99}
    gated_till.check(confirmed=99, available=101)


def test_an_order_that_the_database_has_confirmed_before_is_confirmed(gated_till: EnvelopeSetup) -> None:
    gate = gated_till.gate
    assert gate is not None
    ids = gated_till.submit(3)
    gate.confirm(order_id="o001", sku=SKU, segment=0, quantity=1, epoch=1)
    assert {one.state for one in gated_till.take(ids).settled} == {"confirmed"}
    gated_till.check(confirmed=3, available=197)


def test_a_worker_whom_a_later_token_overtook_in_the_database_tries_later_uncounted(
    memory: MemoryStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database)
    setup = EnvelopeSetup(opened(memory, "in the worker", gate, segments=1), gate)
    ids = setup.submit(2)
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=1, epoch=1, fence=2**52)
    report = setup.take(ids)
    assert report.put_off == dict.fromkeys(ids, "a later holder of its segment reached the database first")
    assert (setup.found("o000").begun, setup.found("o000").state) == (0, "reserved")


def test_with_fewer_units_in_the_database_the_pool_freezes_until_a_rebuild_decides(gated_till: EnvelopeSetup) -> None:
    gate = gated_till.gate
    assert gate is not None
    gate.confirm(order_id="other", sku=SKU, segment=0, quantity=49, epoch=1)
    for segment in (1, 2, 3):
        gate.confirm(order_id=f"other {segment}", sku=SKU, segment=segment, quantity=50, epoch=1)
    ids = gated_till.submit(2)
    reason = gated_till.take(ids).put_off[ids[-1]]
    assert reason.startswith("PoolFrozen: pool 'mug' is frozen"), reason
    with pytest.raises(PoolFrozen):
        gated_till.take(ids)
    assert gate.totals(SKU).sold == 200
    rebuild(gated_till.pool, gate)
    report = gated_till.take(ids)
    assert sorted(one.state for one in report.settled) == ["cancelled", "confirmed"]
    gated_till.check(confirmed=200, available=0)
