"""What one server is still to be asked, and what is cleaned up after requests that failed."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import StoreRefused, StoreUnavailable
from segmented.models import Acquired, Lost, Released, Renewed
from segmented.protocol import AcquireVote, ReleaseVote, RenewVote
from segmented.stores.quorum import request_queue as module
from segmented.stores.quorum.request_queue import LOOKS, Errand, RequestQueue
from segmented.stores.quorum.tally import Poll

if TYPE_CHECKING:
    from segmented.protocol import Operation

ACQUIRE = AcquireVote("lock", "h", 1_000, round=1)
GIVE_BACK = ReleaseVote("lock", "h", 1)
RELEASE = ReleaseVote("lock", "h")
YES = Acquired(0, 1_000, replay=False)
GONE = StoreUnavailable("gone")
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
    queue.settle(asked(GIVE_BACK), GONE, 0.0)
    assert queue.take(1.0) == (errands[2:], [])
    assert duties(queue, 2.0) == [GIVE_BACK]


def test_what_there_is_no_room_for_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 2)
    queue, errands = RequestQueue(PAUSE), [asked(RELEASE) for _ in range(3)]
    assert list(queue.add(errands)) == errands[2:]


def test_what_went_well_leaves_nothing_to_do() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(ACQUIRE), YES, 0.0)
    queue.settle(asked(RenewVote("lock", "h", 1_000)), Renewed(1_000), 0.0)
    queue.settle(asked(RELEASE), Released(), 0.0)
    queue.settle(asked(GIVE_BACK), Lost(), 0.0)
    assert (len(queue), queue.next_time()) == (0, inf)


def test_a_release_that_failed_is_repeated_less_and_less_often_until_it_is_answered() -> None:
    queue, now = RequestQueue(PAUSE), 0.0
    queue.settle(asked(RELEASE), GONE, now)
    pauses = []
    for _ in range(6):
        pauses.append(round(queue.next_time() - now, 3))
        now = queue.next_time()
        batch, _ = queue.take(now)
        assert [errand.operation for errand in batch] == [RELEASE]
        queue.settle(batch[0], GONE, now)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    batch, _ = queue.take(queue.next_time())
    queue.settle(batch[0], Lost(), now)
    assert (len(queue), queue.next_time()) == (0, inf)


def test_a_release_that_failed_is_given_up_after_a_minute() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(RELEASE), GONE, 0.0)
    batch, _ = queue.take(60.0)
    queue.settle(batch[0], GONE, 60.0)
    assert len(queue) == 0


def test_a_release_that_was_refused_is_not_repeated() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(RELEASE), StoreRefused("no"), 0.0)
    assert len(queue) == 0


@pytest.mark.parametrize("failed", [ACQUIRE, RenewVote("lock", "h", 1_000, reestablish=True)])
def test_after_a_request_that_failed_its_release_is_sent_a_few_times_more(failed: AcquireVote | RenewVote) -> None:
    queue, now = RequestQueue(PAUSE), 0.0
    queue.settle(asked(failed), GONE, now)
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


def test_a_renewal_that_takes_nothing_needs_no_cleaning_up() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(RenewVote("lock", "h", 1_000)), GONE, 0.0)
    queue.settle(asked(RELEASE), Released(), 0.0)
    assert len(queue) == 0


def test_of_two_releases_of_one_holder_the_later_one_is_repeated() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(GIVE_BACK), GONE, 0.0)
    queue.settle(asked(RELEASE), GONE, 0.0)
    queue.settle(asked(GIVE_BACK), GONE, 0.0)
    assert duties(queue, 1.0) == [RELEASE]


def test_an_answered_earlier_release_does_not_end_the_repeats_of_a_later_one() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(GIVE_BACK), GONE, 0.0)
    batch, _ = queue.take(1.0)
    queue.settle(asked(RELEASE), GONE, 1.0)
    queue.settle(batch[0], Lost(), 1.0)
    assert duties(queue, 2.0) == [RELEASE]


def test_what_is_under_way_is_not_taken_twice() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(RELEASE), GONE, 0.0)
    assert duties(queue, 1.0) == [RELEASE]
    assert duties(queue, 2.0) == []


def test_errands_go_before_duties() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(RELEASE), GONE, 0.0)
    other = asked(AcquireVote("another", "h", 1_000))
    queue.add([other])
    batch, _ = queue.take(1.0)
    assert [errand.operation for errand in batch] == [other.operation, RELEASE]


def test_at_the_end_the_last_release_of_each_holder_is_all_that_is_sent() -> None:
    queue = RequestQueue(PAUSE)
    queue.settle(asked(GIVE_BACK), GONE, 0.0)
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
        queue.settle(asked(AcquireVote("lock", f"h{index}", 1_000)), GONE, 0.0)
        queue.settle(asked(release), GONE, 0.0)
    assert duties(queue, 1.0) == releases[2:]
