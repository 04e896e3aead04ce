"""What a lease believes of itself: renewals, the end of trust, a loss that is told once, a release without a reply."""

from __future__ import annotations

from math import inf
from typing import Final

import pytest

from segmented.clock import ManualClock
from segmented.errors import LeaseLost
from segmented.locks.lease_state import LeaseState, Renewal, tend_plan, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Lost, Released, Renewed
from segmented.plans import Batch, Now

RENEWAL: Final = Renewal(is_wanted=True, seconds_max=600)


def a_lease(clock: ManualClock, ttl_ms: int = 1_000) -> LeaseState:
    lease = LeaseState(LockClaim("door", "h", ttl_ms), Acquired(1, ttl_ms, replay=False), clock.now(), clock)
    lease.keep_renewed(RENEWAL)
    return lease


@pytest.mark.parametrize(
    ("ttl_ms", "seconds"), [(60_000, 1.0), (900, trusted_until(0, 900) - 0.4)], ids=["a second", "the lease's end"]
)
def test_a_batch_of_renewals_takes_a_second_at_most_and_ends_with_its_first_lease(ttl_ms: int, seconds: float) -> None:
    clock = ManualClock()
    lease, began = a_lease(clock, ttl_ms), clock.now()
    clock.advance(ttl_ms / 1_000 * 0.4 if ttl_ms > 1_000 else 0.4)
    plan = tend_plan([lease])
    assert next(plan) == Now()
    batch = plan.send(clock.now())
    assert isinstance(batch, Batch)
    assert batch.operations == (lease.claim.renewing(ttl_ms),)
    assert batch.deadline == pytest.approx(clock.now() + seconds)
    assert batch.deadline <= trusted_until(began, ttl_ms)


def test_a_lease_whose_release_was_asked_for_is_not_renewed_even_when_it_is_due() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    clock.advance(0.4)
    lease.note_release_asked()
    assert lease.next_look() == lease.trusted_until
    clock.advance(0.1)
    plan = tend_plan([lease])
    next(plan)
    with pytest.raises(StopIteration):
        plan.send(clock.now())


def test_a_lease_that_is_due_when_its_time_has_run_out_is_told_lost_and_not_renewed() -> None:
    clock = ManualClock()
    lease, told = a_lease(clock), list[int]()
    lease.call_when_lost(lambda: told.append(1))
    clock.advance(1.0)
    plan = tend_plan([lease])
    next(plan)
    with pytest.raises(StopIteration):
        plan.send(clock.now())
    assert told == [1]


def test_a_renewal_whose_answer_comes_after_the_end_does_not_bring_the_lease_back() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    clock.advance(0.5)
    asked_at = clock.now()
    lease.begin_renewal(1_000, asked_at)
    clock.advance(0.6)
    lease.note_renewal(Renewed(1_000), asked_at)
    assert lease.is_lost
    assert lease.next_look() == -inf
    with pytest.raises(LeaseLost):
        lease.require()


def test_whoever_asks_to_be_told_at_the_very_end_is_told_once() -> None:
    clock = ManualClock()
    lease, calls = a_lease(clock), list[int]()
    assert lease.call_when_lost(lambda: calls.append(1))
    clock.advance(1.0)
    assert not lease.call_when_lost(lambda: calls.append(2))
    assert calls == [1, 2]
    assert not lease.call_when_lost(lambda: calls.append(3))
    assert lease.is_lost
    assert calls == [1, 2, 3]


class LostWhileLooking(LeaseState):
    """Its keeper finds the loss just after somebody has looked."""

    @property
    def is_lost(self) -> bool:
        found = super().is_lost
        if not found:
            self.note_renewal(Lost(), self._clock.now())
        return found


def test_a_loss_that_the_keeper_finds_while_somebody_asks_to_be_told_is_told() -> None:
    clock, calls = ManualClock(), list[int]()
    lease = LostWhileLooking(LockClaim("door", "h", 1_000), Acquired(1, 1_000, replay=False), clock.now(), clock)
    lease.begin_renewal(1_000, clock.now())
    lease.call_when_lost(lambda: calls.append(1))
    assert calls == [1]
    assert lease.is_lost


def test_a_holder_doubts_its_lease_a_hundredth_and_two_milliseconds_before_its_end() -> None:
    clock = ManualClock()
    began = clock.now()
    lease = a_lease(clock, 10_000)
    assert lease.trusted_until == pytest.approx(began + 9.898)


def test_a_failed_renewal_is_repeated_after_a_20th_of_the_life_and_within_the_cap() -> None:
    clock = ManualClock()
    lease = LeaseState(LockClaim("door", "h", 1_000), Acquired(1, 1_000, replay=False), clock.now(), clock)
    began = clock.now()
    lease.keep_renewed(Renewal(is_wanted=True, seconds_max=0.5))
    lease.begin_renewal(1_000, began + 0.4)
    lease.note_failed_renewal(began + 0.4)
    assert lease.next_look() == pytest.approx(began + 0.45)
    lease.begin_renewal(1_000, began + 0.46)
    lease.note_failed_renewal(began + 0.46)
    assert lease.next_look() == lease.trusted_until


GONE: Final = Lost()
MAYBE: Final = Lost(is_unsure=True)


@pytest.mark.parametrize(
    ("answers", "is_loss"),
    [([GONE], True), ([MAYBE], False), ([None, GONE], False), ([None, MAYBE], False), ([Released()], False)],
    ids=["gone", "gone after a lost reply", "gone at the second time", "both", "released"],
)
def test_what_is_gone_is_a_loss_unless_our_own_release_may_have_done_it(
    answers: list[Lost | Released | None], *, is_loss: bool
) -> None:
    lease, told = a_lease(ManualClock()), list[int]()
    lease.call_when_lost(lambda: told.append(1))
    for answer in answers:
        lease.note_release_asked()
        if answer is not None and is_loss:
            with pytest.raises(LeaseLost):
                lease.note_release(answer)
        elif answer is not None:
            lease.note_release(answer)
    assert lease.has_ended
    assert (lease.is_lost, told) == (is_loss, [1] if is_loss else [])


@pytest.mark.parametrize("answers", [[MAYBE], [None, GONE]], ids=["unsure", "the second time"])
def test_a_lease_over_when_its_release_was_first_asked_for_is_lost_for_any_answer(answers: list[Lost | None]) -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    clock.advance(1.0)
    for answer in answers:
        lease.note_release_asked()
        if answer is not None:
            with pytest.raises(LeaseLost):
                lease.note_release(answer)
    assert lease.has_ended


def test_a_release_may_take_a_second_beyond_the_leases_end() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    assert lease.release_deadline() == lease.trusted_until + 1.0
    clock.advance(5.0)
    assert lease.release_deadline() == clock.now() + 1.0
