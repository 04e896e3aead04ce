"""The keeper's agenda: who is due together, how many at most, and what it forgets."""

from __future__ import annotations

import tracemalloc
from math import inf
from typing import Final

from segmented.clock import ManualClock
from segmented.locks.keeper import Agenda
from segmented.locks.lease_state import LeaseState, Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Renewed

TTL_MS: Final = 3_000
RENEWAL: Final = Renewal(is_wanted=True, seconds_max=60)


def noted(agenda: Agenda, clock: ManualClock, count: int) -> list[LeaseState]:
    """Leases of 3 s that begin now: each is to be renewed after 0.968 s, and may be 0.06 s early."""
    leases = [
        LeaseState(LockClaim(f"door-{index}", "h", TTL_MS), Acquired(1, TTL_MS, replay=False), clock.now(), clock)
        for index in range(count)
    ]
    for lease in leases:
        lease.keep_renewed(RENEWAL)
        agenda.add(lease)
    return leases


def test_of_twelve_hundred_that_are_due_five_hundred_are_taken_at_a_time() -> None:
    agenda, clock = Agenda(), ManualClock()
    leases = noted(agenda, clock, 1_200)
    clock.advance(1.0)
    assert [len(agenda.take_due(clock.now())) for _ in range(4)] == [500, 500, 200, 0]
    assert (len(agenda), len(leases)) == (0, 1_200)


def test_a_dropped_lease_is_not_due_and_one_that_owes_its_release_is_held_until_then() -> None:
    agenda, clock = Agenda(), ManualClock()
    kept, owing, dropped = noted(agenda, clock, 3)
    owing.note_release_asked()
    owing.owe_release()
    assert agenda.add(owing)
    del owing, dropped
    clock.advance(0.5)
    assert [lease.name for lease in agenda.take_due(clock.now())] == ["door-1"]
    clock.advance(0.5)
    assert agenda.take_due(clock.now()) == [kept]
    assert len(agenda) == 0


def test_what_is_nearly_due_goes_with_what_is_due_and_nothing_goes_alone_too_early() -> None:
    agenda, clock = Agenda(), ManualClock()
    (first,) = noted(agenda, clock, 1)
    clock.advance(0.05)
    (second,) = noted(agenda, clock, 1)
    clock.advance(0.05)
    (third,) = noted(agenda, clock, 1)
    clock.advance(0.86)
    assert agenda.take_due(clock.now()) == []
    clock.advance(0.02)
    assert agenda.take_due(clock.now()) == [first, second]
    assert agenda.take_due(clock.now()) == []
    assert len(agenda) == 1
    clock.advance(0.1)
    assert agenda.take_due(clock.now()) == [third]


def test_whether_a_lease_is_the_soonest_is_told_and_one_that_is_discarded_is_not_due() -> None:
    agenda, clock = Agenda(), ManualClock()
    lease = LeaseState(LockClaim("door", "h", TTL_MS), Acquired(1, TTL_MS, replay=False), clock.now(), clock)
    short = LeaseState(LockClaim("window", "h", 100), Acquired(1, 100, replay=False), clock.now(), clock)
    assert agenda.add(lease)
    assert agenda.add(short)
    assert not agenda.add(lease)
    agenda.discard(short)
    assert agenda.next_time() == lease.next_look()
    agenda.discard(lease)
    assert agenda.next_time() == inf


def test_a_lease_that_was_renewed_by_hand_is_due_at_its_new_time_alone() -> None:
    agenda, clock = Agenda(), ManualClock()
    (lease,) = noted(agenda, clock, 1)
    before = agenda.next_time()
    clock.advance(0.5)
    lease.begin_renewal(TTL_MS, clock.now())
    lease.note_renewal(Renewed(TTL_MS), clock.now())
    assert not agenda.add(lease)
    assert agenda.next_time() == lease.next_look() > before
    clock.advance(before - clock.now())
    assert agenda.take_due(clock.now()) == []
    assert len(agenda) == 1


def test_ten_thousand_leases_that_came_and_went_leave_five_hundred_entries_at_most() -> None:
    agenda, clock = Agenda(), ManualClock()
    kept = noted(agenda, clock, 1)
    tracemalloc.start()
    try:
        for _ in range(10_000):
            (lease,) = noted(agenda, clock, 1)
            agenda.discard(lease)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept
    assert len(agenda) == 1
    assert used < 200_000, "an entry has about 110 bytes"
