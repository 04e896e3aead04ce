"""Single flights with many callers at once, lost leases, and early refreshes. The ids are the rows of the catalogue."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from tests.fixtures.stores import Side
from tests.support.contract.bodies import Renewals
from tests.support.contract.caches.flights import SOON, Flight, Loader
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until

CALLERS = 16


def crowd(side: Side, call: Callable[[], object], *, count: int = CALLERS) -> list[Any]:
    """Start callers, and return once they all wait."""
    started = []
    for index in range(count):
        started.append(side.start(call))
        wait_until(lambda: has_come_to_rest(side.store, index + 1))  # noqa: B023  # called at once
    return started


def test_j7_one_loader_call_for_any_number_of_callers(waiting_side: Side) -> None:
    flight, key, gate = Flight(waiting_side), waiting_side.name(), threading.Event()
    loader = Loader("loaded", gate=gate)
    first = waiting_side.start(lambda: flight.get(key, loader))
    assert loader.began.wait(SOON)
    others = crowd(waiting_side, lambda: flight.get(key, loader))
    gate.set()
    assert [call.result(SOON) for call in [first, *others]] == ["loaded"] * (CALLERS + 1)
    assert loader.calls == 1
    assert lines_of(waiting_side.store) == {}


def test_a_loader_that_takes_longer_than_its_lease_keeps_its_turn(
    waiting_side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)  # and a busy machine is never late
    flight, key, gate = Flight(waiting_side, ttl=60), waiting_side.name(), threading.Event()
    loader = Loader("loaded", gate=gate)
    first = waiting_side.start(lambda: flight.get(key, loader))
    assert loader.began.wait(SOON)
    other = waiting_side.start(lambda: flight.get(key, loader))
    wait_until(Renewals(waiting_side.execute, waiting_side.clock, key).has_two)
    gate.set()
    assert [first.result(SOON), other.result(SOON), loader.calls] == ["loaded", "loaded", 1]


def test_j7_a_lease_lost_in_the_middle_costs_one_more_call_and_not_one_a_waiter(waiting_side: Side) -> None:
    side, key = waiting_side, waiting_side.name()
    flight, gate, second_gate = Flight(side), threading.Event(), threading.Event()
    slept, second = Loader("slept", gate=gate), Loader("second", gate=second_gate)
    first = side.start(lambda: flight.get(key, slept))
    assert slept.began.wait(SOON)
    others = crowd(side, lambda: flight.get(key, second))
    lose_lock(side, key)
    assert second.began.wait(SOON)
    gate.set()  # it wakes up while its successor loads: its value serves those who wait
    assert first.result(SOON) == "slept"
    wait_until(lambda: sum(call.done() for call in others) == CALLERS - 1)
    second_gate.set()
    assert sorted(call.result(SOON) for call in others) == ["second"] + ["slept"] * (CALLERS - 1)
    assert (slept.calls, second.calls, flight.get(key, second)) == (1, 1, "second")


def lose_lock(side: Side, key: str) -> None:
    """End the lease of whoever loads, as after a pause of its process for longer than it lasts."""
    if side.server is not None:
        side.raw().delete(lock_keys(key).lock)
        side.raw().publish(lock_keys(key).freed, "freed")
        return
    holder = side.store.model.ask("GET", lock_keys(key).lock).decode()
    side.execute(op.ReleaseLock(key, holder))


def test_who_waits_too_long_for_the_loading_of_others_is_told_so(waiting_side: Side) -> None:
    flight, key, gate = Flight(waiting_side, timeout=0.2), waiting_side.name(), threading.Event()
    loader = Loader("loaded", gate=gate)
    first = waiting_side.start(lambda: flight.get(key, loader))
    assert loader.began.wait(SOON)
    with pytest.raises(AcquireTimeout, match=f"^lock '{key}' was not free within 0.2 s$"):
        flight.get(key, loader)
    gate.set()
    assert (first.result(SOON), loader.calls) == ("loaded", 1)


# --- early refresh ---


def test_one_caller_renews_a_value_early_and_the_others_get_the_old_one_meanwhile(waiting_side: Side) -> None:
    side, key, gate = waiting_side, waiting_side.name(), threading.Event()
    flight = Flight(side, refresh_ahead=59.99)
    assert flight.get(key, Loader("old")) == "old"
    side.pass_time(0.02)  # it is due
    loader = Loader("new", gate=gate)
    refresher = side.start(lambda: flight.get(key, loader))
    assert loader.began.wait(SOON)
    assert [flight.get(key, loader) for _ in range(5)] == ["old"] * 5
    gate.set()
    assert (refresher.result(SOON), loader.calls, flight.peek(key)) == ("new", 1, "new")
