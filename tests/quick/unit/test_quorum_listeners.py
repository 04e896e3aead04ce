"""What the messages of several servers mean to who waits."""

from __future__ import annotations

from math import inf

from segmented.clock import ManualClock
from segmented.plans import Line
from segmented.stores.quorum.wakeups import Heard, ServerListener
from segmented.stores.wakeups import ThreadWakeups

GRACE = 0.1


class Waiter:
    """The head of a line, and when it would wake."""

    def __init__(self) -> None:
        self.line = Line("freed")
        self.place = self.line.join(lambda: None)
        self.line.park(self.place, inf)
        self.heard = Heard(5, GRACE)
        for server in range(5):
            self.heard.begin(server)

    def after(self, *servers: int, now: float = 0.0) -> bool | float:
        """Return what the head does after messages of these servers."""
        for server in servers:
            self.heard.note(self.line, server, now)
        return self.line.next_step(self.place, now, inf)

    def park(self) -> None:
        self.line.park(self.place, inf)


def test_a_majority_of_messages_wakes_the_head() -> None:
    assert Waiter().after(0, 1, 2) is True


def test_fewer_messages_wake_it_a_little_later() -> None:
    waiter = Waiter()
    assert waiter.after(0, 3, now=7.0) == 7.0 + GRACE


def test_the_last_messages_of_a_release_wake_nobody_at_once() -> None:
    waiter = Waiter()
    assert waiter.after(0, 1, 2) is True
    waiter.park()
    assert waiter.after(3, 4, now=0.01) == GRACE  # what the first message said


def test_messages_of_the_next_release_are_told_from_the_last_ones_of_this() -> None:
    waiter = Waiter()
    assert waiter.after(0, 1, 2) is True
    waiter.park()
    assert waiter.after(3, 0, 4, 1) == GRACE
    assert waiter.after(2) is True


def test_a_release_by_another_majority_is_heard_too() -> None:
    waiter = Waiter()
    assert waiter.after(0, 1, 2) is True
    waiter.park()
    assert waiter.after(2, 3, 4) == GRACE


def test_after_a_silence_all_is_counted_anew() -> None:
    waiter = Waiter()
    assert waiter.after(0, 1, now=0.0) == GRACE
    assert waiter.after(2, 3, now=5.0) is True  # what it was told before has come due
    waiter.park()
    assert waiter.after(0, 1, 2, now=9.0) is True


def test_what_is_forgotten_counts_no_more() -> None:
    waiter = Waiter()
    waiter.after(0, 1)
    waiter.heard.forget()
    assert waiter.after(2) == GRACE


def test_what_a_server_sends_before_it_is_listened_to_means_nothing() -> None:
    waiter = Waiter()
    waiter.heard = Heard(3, GRACE)
    assert waiter.after(0, 1, 2) == inf
    for server in range(3):
        waiter.heard.begin(server)
    assert waiter.after(0, 1) is True


def test_every_ear_in_one_line_hears_every_message_and_who_waits_there_is_woken_too() -> None:
    wakeups = ThreadWakeups(ManualClock())
    heard: list[str] = []
    listeners = [ServerListener(wakeups, "freed", lambda name=name: heard.append(name)) for name in ("a", "b")]  # type: ignore[misc]  # a default argument
    place = wakeups.join("freed")
    for _ in range(3):
        wakeups.signal("freed")
    assert sorted(heard) == ["a", "a", "a", "b", "b", "b"]
    assert place.woken
    wakeups.leave(place, inf)  # which passes the message on
    heard.clear()
    for listener in listeners:
        listener.close()
    wakeups.signal("freed")
    assert heard == []
    assert wakeups.lines() == {}
