"""The keeper of leases: what is due, what is sent, and when a lease is lost."""

import asyncio
import tracemalloc
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from math import inf
from queue import Queue
from typing import Any, Final, TypeVar

import pytest

from segmented import FairLock, InvalidInput, Lease, Lock, MemoryStore, ReadWriteLock
from segmented.clock import ManualClock
from segmented.errors import LeaseLost, StoreUnavailable
from segmented.locks import MultiLease, MultiLock, Semaphore
from segmented.locks.keeper import Agenda
from segmented.locks.lease_state import LeaseState, Renewal, tend_plan, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Lost, Released, Renewed
from segmented.plans import Batch, Now
from segmented.protocol import AcquireVote, Operation, ReleaseVote, RenewVote
from segmented.stores.quorum import lane as module
from segmented.stores.quorum.lane import LOOKS, Errand, RequestQueue
from segmented.stores.quorum.voting import Poll

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


DUE_RENEWAL: Final = Renewal(is_wanted=True, seconds_max=600)


def a_lease(clock: ManualClock, ttl_ms: int = 1_000) -> LeaseState:
    lease = LeaseState(LockClaim("door", "h", ttl_ms), Acquired(1, ttl_ms, replay=False), clock.now(), clock)
    lease.keep_renewed(DUE_RENEWAL)
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


ACQUIRE = AcquireVote("lock", "h", 1_000, round=1)
GIVE_BACK = ReleaseVote("lock", "h", 1)
RELEASE = ReleaseVote("lock", "h")
GONE_ERRAND = StoreUnavailable("gone")
PAUSE = 0.1


def asked(operation: AcquireVote | RenewVote | ReleaseVote) -> Errand:
    return Errand(operation, poll=Poll([]))


def duties(queue: RequestQueue, now: float) -> list[Operation[Any]]:
    batch, _ = queue.take(now)
    return [errand.operation for errand in batch]


def test_errands_are_taken_in_their_order_and_those_that_came_too_late_apart() -> None:
    queue = RequestQueue(PAUSE)
    late, first = Errand(ACQUIRE, send_by=5.0), Errand(RELEASE)
    second = Errand(AcquireVote("another", "h", 1_000), send_by=10.0)
    assert queue.next_time() == inf
    assert list(queue.add([late, first, second])) == []
    assert (len(queue), queue.next_time()) == (3, -inf)
    assert queue.take(7.0) == ([first, second], [late])
    assert len(queue) == 0


def test_no_two_errands_of_one_holder_are_in_a_batch() -> None:
    queue, errands = RequestQueue(PAUSE), [asked(ACQUIRE), asked(AcquireVote("lock", "another", 1_000)), asked(RELEASE)]
    queue.add(errands)
    assert queue.take(0.0) == (errands[:2], [])
    queue.settle(asked(GIVE_BACK), GONE_ERRAND, 0.0)
    assert queue.take(1.0) == (errands[2:], [])
    assert duties(queue, 2.0) == [GIVE_BACK]


def test_a_release_that_failed_is_repeated_less_and_less_often_until_it_is_answered() -> None:
    queue, now = RequestQueue(PAUSE), 0.0
    queue.settle(asked(RELEASE), GONE_ERRAND, now)
    pauses = []
    for _ in range(6):
        pauses.append(round(queue.next_time() - now, 3))
        now = queue.next_time()
        batch, _ = queue.take(now)
        assert [errand.operation for errand in batch] == [RELEASE]
        queue.settle(batch[0], GONE_ERRAND, now)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    batch, _ = queue.take(queue.next_time())
    queue.settle(batch[0], Lost(), now)
    assert (len(queue), queue.next_time()) == (0, inf)


@pytest.mark.parametrize("failed", [ACQUIRE, RenewVote("lock", "h", 1_000, reestablish=True)])
def test_after_a_request_that_failed_its_release_is_sent_a_few_times_more(failed: AcquireVote | RenewVote) -> None:
    queue, now = RequestQueue(PAUSE), 0.0
    queue.settle(asked(failed), GONE_ERRAND, now)
    assert len(queue) == 0  # the lease may be held on other servers
    queue.settle(asked(RELEASE), Released(), now)
    looks = 0
    while queue.next_time() < inf:
        now = queue.next_time()
        batch, _ = queue.take(now)
        assert [errand.operation for errand in batch] == [RELEASE]
        queue.settle(batch[0], Lost(), now)
        looks += 1
    assert looks == LOOKS
    assert now == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.0)


def test_of_two_releases_of_one_holder_the_later_one_is_repeated() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(GIVE_BACK), GONE_ERRAND, 0.0)
    queue.settle(asked(RELEASE), GONE_ERRAND, 0.0)
    queue.settle(asked(GIVE_BACK), GONE_ERRAND, 0.0)
    assert duties(queue, 1.0) == [RELEASE]


def test_at_the_end_the_last_release_of_each_holder_is_all_that_is_sent() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(GIVE_BACK), GONE_ERRAND, 0.0)
    acquire, release, other = asked(ACQUIRE), asked(RELEASE), asked(ReleaseVote("another", "h"))
    queue.add([acquire, release, other])
    batch, late = queue.take_all()
    assert batch == [release, other]
    assert [errand.operation for errand in late] == [GIVE_BACK, ACQUIRE]
    assert (len(queue), queue.next_time()) == (0, inf)


def test_duties_are_bounded_and_the_oldest_is_left_to_lapse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEFTOVERS_MAX", 3)
    queue = RequestQueue(PAUSE)
    releases = [ReleaseVote("lock", f"h{index}") for index in range(5)]
    for index, release in enumerate(releases):
        queue.settle(asked(AcquireVote("lock", f"h{index}", 1_000)), GONE_ERRAND, 0.0)
        queue.settle(asked(release), GONE_ERRAND, 0.0)
    assert duties(queue, 1.0) == releases[2:]


AnswerT = TypeVar("AnswerT")


def inside(lock: Lock | Semaphore) -> Generator[Lease, None, None]:
    with lock as lease:
        yield lease


def test_a_block_whose_lease_has_lapsed_frees_nobody_elses_lock() -> None:
    clock = ManualClock()
    lock = Lock(MemoryStore(clock=clock), "x", ttl=1)
    first, second = inside(lock), inside(lock)
    next(first)
    clock.advance(2)
    held = next(second)
    first.close()
    assert held.is_trusted
    second.close()


def test_a_block_of_unknown_owner_ends_in_another_thread_only_if_it_is_alone() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    with ThreadPoolExecutor(1) as other:
        alone = semaphore.__enter__()
        other.submit(semaphore.__exit__, None, None, None).result()
        assert not alone.is_trusted
        leases = semaphore.__enter__(), semaphore.__enter__()
        with pytest.raises(InvalidInput, match=r"^which of 2 open blocks of one lock ends is not known"):
            other.submit(semaphore.__exit__, None, None, None).result()
        assert [lease.is_trusted for lease in leases] == [True, True]
        for lease in leases:
            lease.release()


class Asked(MemoryStore):
    """A store that tells how many operations it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Queue[object] = Queue()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.asked.put(operation)
        return super().execute(operation, deadline=deadline)


def of_a_lock(store: MemoryStore) -> AbstractContextManager[Lease]:
    return Lock(store, "x", ttl=60)


def of_a_fair_lock(store: MemoryStore) -> AbstractContextManager[Lease]:
    return FairLock(store, "x", ttl=60)


def of_a_writer(store: MemoryStore) -> AbstractContextManager[Lease]:
    return ReadWriteLock(store, "x", ttl=60).write


def of_many(store: MemoryStore) -> AbstractContextManager[MultiLease]:
    return MultiLock(store, ["x"], ttl=60)


def by_generator(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    found = inside(lock)
    return partial(next, found), found.close


def by_stack(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    stack = ExitStack()
    return partial(stack.enter_context, lock), stack.close


def by_stack_of_leases(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    stack = ExitStack()
    return lambda: stack.enter_context(lock.acquire()), stack.close


def by_call(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    return lock.__enter__, partial(lock.__exit__, None, None, None)


@pytest.mark.parametrize("entering", [by_generator, by_stack, by_stack_of_leases, by_call])
@pytest.mark.parametrize("kind", [of_a_lock, of_a_fair_lock, of_a_writer, of_many])
def test_a_thread_of_a_pool_waits_for_the_block_of_an_earlier_request(kind: Any, entering: Any) -> None:  # noqa: ANN401  # functions of this file
    store = Asked()
    lock = kind(store)
    (enter, leave), (enter_next, leave_next) = entering(lock), entering(lock)
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        pool.submit(enter).result()
        while not store.asked.empty():
            store.asked.get()
        later = pool.submit(enter_next)
        later.add_done_callback(store.asked.put)
        store.asked.get(timeout=120)  # its attempt, or its end
        other.submit(leave).result()
        later.result(timeout=120)
        other.submit(leave_next).result()


def test_a_task_that_waits_for_a_task_of_its_own_event_loop_names_the_lock_to_use() -> None:
    async def test() -> None:
        lock = Lock(MemoryStore(), "x")
        is_inside, may_end = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            with lock:
                is_inside.set()
                await may_end.wait()

        holder = asyncio.create_task(hold())
        await is_inside.wait()
        with (
            pytest.raises(
                InvalidInput, match=r"held by another task of this event loop, .* use the Async class of this lock$"
            ),
            lock,
        ):
            pass
        may_end.set()
        await holder
        with lock as lease:
            assert lease.is_trusted

    asyncio.run(test())
