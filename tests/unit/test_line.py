from __future__ import annotations

import threading
from math import inf

from segmented.clock import ManualClock
from segmented.plans.line import Line, Place
from segmented.stores.wakeups import ThreadWakeups

AT_ONCE = 0.0


class Waiters:
    """A line whose notifications are counted."""

    def __init__(self) -> None:
        self.line = Line("freed")
        self.notified: list[str] = []

    def join(self, name: str) -> Place:
        return self.line.join(lambda: self.notified.append(name))

    def parked(self, name: str, due: float = inf) -> Place:
        place = self.join(name)
        self.line.park(place, due)
        return place


def test_the_first_to_come_may_try_at_once_and_the_next_stands_behind() -> None:
    waiters = Waiters()
    assert not waiters.join("a").is_behind
    assert waiters.join("b").is_behind


def test_a_message_wakes_the_head_and_nobody_else() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    waiters.line.signal()
    assert waiters.line.next_step(a, 1.0, inf) is True
    assert waiters.line.next_step(b, 1.0, inf) == inf


def test_two_messages_wake_two() -> None:
    waiters = Waiters()
    places = [waiters.parked(name) for name in "abc"]
    waiters.line.signal()
    waiters.line.signal()
    assert [waiters.line.next_step(place, 1.0, inf) for place in places] == [True, True, inf]


def test_a_message_to_an_empty_line_is_nobodys() -> None:
    waiters = Waiters()
    waiters.line.signal()
    assert waiters.line.next_step(waiters.parked("a"), 1.0, inf) == inf


def test_a_message_during_the_heads_own_try_makes_it_try_again() -> None:
    waiters = Waiters()
    a = waiters.join("a")
    waiters.line.signal()
    waiters.line.park(a, 50.0)
    assert waiters.line.next_step(a, 1.0, inf) is True
    assert waiters.line.next_step(a, 1.0, inf) == 50.0


def test_a_message_that_comes_while_the_only_waiter_is_out_trying_makes_it_try_again() -> None:
    waiters = Waiters()
    a = waiters.parked("a")
    waiters.line.signal()
    assert waiters.line.next_step(a, 1.0, inf) is True
    waiters.line.signal()
    waiters.line.park(a, 50.0)
    assert waiters.line.next_step(a, 1.0, inf) is True
    waiters.line.park(a, 50.0)
    assert waiters.line.next_step(a, 1.0, inf) == 50.0


def test_who_was_woken_and_leaves_without_having_tried_passes_the_wake_up_on() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    waiters.line.signal()
    waiters.line.leave(a, inf)
    assert waiters.line.next_step(b, 1.0, inf) is True


def test_who_was_woken_at_its_deadline_still_wakes() -> None:
    waiters = Waiters()
    a = waiters.parked("a")
    waiters.line.signal()
    assert waiters.line.next_step(a, 9.0, deadline=9.0) is True


def test_who_tried_and_failed_stands_where_it_stood_before() -> None:
    waiters = Waiters()
    a, b, c = (waiters.parked(name) for name in "abc")
    waiters.line.signal()
    waiters.line.signal()
    for place in (a, b):
        assert waiters.line.next_step(place, 1.0, inf) is True
    waiters.line.park(b, inf)
    waiters.line.park(a, inf)
    for place in (a, b, c):
        waiters.line.signal()
        assert waiters.line.next_step(place, 1.0, inf) is True


def test_only_the_head_minds_the_time_at_which_something_may_be_free() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a", due=5.0), waiters.parked("b", due=5.0)
    assert waiters.line.next_step(a, 1.0, inf) == 5.0
    assert waiters.line.next_step(b, 1.0, inf) == inf
    assert waiters.line.next_step(b, 6.0, inf) == inf
    assert waiters.line.next_step(a, 6.0, inf) is True
    assert waiters.line.next_step(b, 6.0, inf) == inf


def test_the_earlier_of_two_times_counts() -> None:
    waiters = Waiters()
    a = waiters.parked("a", due=5.0)
    waiters.parked("b", due=3.0)
    waiters.line.park(a, 9.0)
    assert waiters.line.next_step(a, 1.0, inf) == 3.0


def test_a_time_that_passes_before_the_next_in_line_has_parked_is_not_forgotten() -> None:
    waiters = Waiters()
    a, b = waiters.join("a"), waiters.join("b")
    waiters.line.leave(a, due=5.0)
    waiters.line.park(b, inf)
    assert waiters.line.next_step(b, 6.0, inf) is True


def test_who_leaves_tells_the_next_what_it_learnt_and_wakes_it_to_look() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    waiters.notified.clear()
    waiters.line.leave(a, AT_ONCE)
    assert waiters.notified == ["b"]
    assert waiters.line.next_step(b, 1.0, inf) is True


def test_a_deadline_that_has_come_ends_the_wait() -> None:
    waiters = Waiters()
    a = waiters.parked("a", due=50.0)
    assert waiters.line.next_step(a, 1.0, deadline=7.0) == 7.0
    assert waiters.line.next_step(a, 7.0, deadline=7.0) is False


def test_the_next_becomes_the_head_when_the_head_leaves() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a", due=5.0), waiters.parked("b")
    waiters.line.leave(a, inf)
    assert waiters.line.next_step(b, 1.0, inf) == 5.0


def test_a_line_counts_everyone_who_joined_and_has_not_left() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    waiters.line.signal()
    assert waiters.line.next_step(a, 1.0, inf) is True
    assert len(waiters.line) == 2
    waiters.line.leave(b, inf)
    assert len(waiters.line) == 1
    waiters.line.leave(a, inf)
    assert len(waiters.line) == 0


def test_a_message_reaches_who_was_trying_while_everyone_else_left() -> None:
    wakeups = ThreadWakeups(ManualClock())
    a, b = wakeups.join("freed"), wakeups.join("freed")
    wakeups.signal("freed")
    assert wakeups.park(a, inf, inf) is True
    wakeups.leave(b, inf)
    woken = threading.Event()
    threading.Thread(target=lambda: woken.set() if wakeups.park(a, inf, inf) else None, daemon=True).start()
    wakeups.signal("freed")
    assert woken.wait(5)
