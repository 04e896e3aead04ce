import threading
from math import inf

import pytest

from segmented.plans.line import AHEAD_SECONDS, LATE_SECONDS, Line, Offer, Place, stagger
from segmented.protocol import AcquireLock, ReleaseLock

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

    def offering(self, name: str, *, is_undone_late: bool = True) -> Place:
        place = self.join(name)
        undo = (ReleaseLock("x", name),)
        self.line.park(place, inf, Offer(AcquireLock("x", name, 1_000), undo, undo if is_undone_late else ()))
        return place


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
    waiters.line.park(a, 50.0)
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


def test_whoever_becomes_the_head_is_woken_to_mind_the_time() -> None:
    waiters = Waiters()
    a, b = waiters.offering("a"), waiters.offering("b")
    c, d = waiters.parked("c", due=5.0), waiters.parked("d")
    waiters.notified.clear()
    waiters.line.signal()
    assert waiters.notified == ["a", "b"]
    waiters.notified.clear()
    assert waiters.line.take_offer() is b
    assert waiters.notified == ["c"]
    waiters.notified.clear()
    assert [waiters.line.next_step(place, 5.0, inf) for place in (a, c)] == [True, True]
    assert waiters.notified == ["d"]
    assert waiters.line.next_step(d, 5.0, inf) == inf


def test_the_earlier_of_two_times_counts() -> None:
    waiters = Waiters()
    a = waiters.parked("a", due=5.0)
    waiters.parked("b", due=3.0)
    waiters.line.park(a, 9.0)
    assert waiters.line.next_step(a, 1.0, inf) == 3.0


def test_a_deadline_that_has_come_ends_the_wait() -> None:
    waiters = Waiters()
    a = waiters.parked("a", due=50.0)
    assert waiters.line.next_step(a, 1.0, deadline=7.0) == 7.0
    assert waiters.line.next_step(a, 7.0, deadline=7.0) is False


# --- hand-off ---


def test_a_release_makes_the_heads_attempt_and_wakes_it_with_the_answer() -> None:
    waiters = Waiters()
    a, b = waiters.offering("a"), waiters.offering("b")
    assert waiters.line.take_offer() is a
    assert waiters.line.next_step(a, 1.0, inf) == inf
    assert waiters.line.hand(a, ("acquired", 1.0))
    assert waiters.line.next_step(a, 1.0, inf) is True
    assert a.take_handed() == ("acquired", 1.0)
    assert a.take_handed() is None
    assert waiters.line.next_step(b, 1.0, inf) == inf


def test_a_waiter_woken_while_trying_makes_its_next_attempt_alone() -> None:
    line = Line("c")
    place = line.join(threading.Event().set)
    line.signal()  # it is out trying, for the first time
    line.park(place, inf, Offer(AcquireLock("door", "h", 1_000)))
    assert line.take_offer() is None
    assert line.next_step(place, 0.0, 10.0) is True
    assert line.take_offer() is None


def test_a_head_that_has_not_parked_yet_has_to_try_itself() -> None:
    waiters = Waiters()
    waiters.join("a")
    waiters.offering("b")
    assert waiters.line.take_offer() is None


def test_an_attempt_without_an_answer_wakes_its_waiter_to_try_itself() -> None:
    waiters = Waiters()
    a = waiters.offering("a")
    waiters.line.take_offer()
    assert waiters.line.hand(a, None)
    assert waiters.line.next_step(a, 1.0, inf) is True
    assert a.take_handed() is None


def test_a_waiter_that_was_served_in_vain_minds_time_and_deadline_again() -> None:
    waiters = Waiters()
    a = waiters.offering("a")
    waiters.line.take_offer()
    assert waiters.line.hand(a, ("held", 1.0))
    assert waiters.line.next_step(a, 1.0, inf) is True
    waiters.line.park(a, 3.0, a.offer)
    assert waiters.line.next_step(a, 1.0, 7.0) == 3.0
    assert waiters.line.next_step(a, 7.0, 7.0) is False


def test_a_waiter_whose_deadline_comes_waits_a_tenth_of_a_second_for_its_attempt() -> None:
    waiters = Waiters()
    a = waiters.offering("a")
    waiters.line.take_offer()
    assert waiters.line.next_step(a, 5.0, 5.0) == 5.1
    assert waiters.line.next_step(a, 5.1, 5.0) is False


def test_an_attempt_for_somebody_who_was_cancelled_is_to_be_undone() -> None:
    waiters = Waiters()
    for is_undone_late in (False, True):
        a = waiters.offering("a", is_undone_late=is_undone_late)
        waiters.line.take_offer()
        waiters.line.leave(a, AT_ONCE, in_time=False)
        assert not waiters.line.hand(a, ("acquired", 1.0))
        assert waiters.line.undoing(a) == (ReleaseLock("x", "a"),)


def test_after_a_hand_over_to_a_waiter_that_left_the_next_one_tries() -> None:
    waiters = Waiters()
    a, b = waiters.offering("a"), waiters.offering("b")
    assert waiters.line.take_offer() is a
    waiters.line.leave(a, inf, in_time=False)
    assert waiters.line.next_step(b, 1.0, inf) == inf
    assert not waiters.line.hand(a, ("refused for good", 1.0))
    assert waiters.line.next_step(b, 1.0, inf) is True


def test_an_attempt_is_not_undone_once_its_waiter_has_gone_on_with_the_answer() -> None:
    waiters = Waiters()
    a = waiters.offering("a")
    taken: list[Place] = []
    assert waiters.line.take_offer(taken) is a
    assert waiters.line.hand(a, ("answer", 1.0), taken)
    waiters.line.leave(a, inf)
    assert waiters.line.hand(a, None, taken)  # an exception struck the caller after the first call


def test_a_caller_struck_after_its_hand_over_does_not_answer_for_the_next_one() -> None:
    waiters = Waiters()
    a, ones, others = waiters.offering("a"), list[Place](), list[Place]()
    assert waiters.line.take_offer(ones) is a
    assert waiters.line.hand(a, ("busy", 1.0), ones)
    assert waiters.line.next_step(a, 1.0, inf) is True
    waiters.line.park(a, inf, a.offer)
    assert waiters.line.take_offer(others) is a
    assert waiters.line.hand(a, None, ones)
    assert waiters.line.next_step(a, 1.0, 9.0) == 9.0 + LATE_SECONDS  # the other caller is making its attempt still
    waiters.line.leave(a, inf, in_time=False)
    assert not waiters.line.hand(a, ("acquired", 2.0), others)


def test_a_release_during_the_firsts_turn_wakes_the_next_once_the_first_has_left() -> None:
    line = Line("freed", "us")
    first, second = line.join(lambda: None), line.join(lambda: None)
    for place in (first, second):
        place.ahead = 2
        line.park(place, inf)
    line.hear(1.0, "turn:us")
    assert line.next_step(first, 1.0, inf) is True
    line.hear(1.01, "a holder")
    assert line.next_step(second, 1.01, inf) == 1.01 + AHEAD_SECONDS + stagger(2)
    line.leave(first, inf)
    assert line.next_step(second, 1.02, inf) is True


def test_a_waiter_that_gives_up_before_its_turn_leaves_a_release_to_those_ahead() -> None:
    line = Line("freed", "us")
    first, second = line.join(lambda: None), line.join(lambda: None)
    for place in (first, second):
        place.ahead = 2
        line.park(place, inf)
    line.hear(1.0, "a holder")
    line.leave(first, inf)
    assert line.next_step(second, 1.02, inf) == 1.0 + AHEAD_SECONDS + stagger(2)


def test_an_attempt_for_somebody_whose_deadline_came_is_undone_if_that_was_said() -> None:
    waiters = Waiters()
    a, b = waiters.offering("a", is_undone_late=True), waiters.offering("b", is_undone_late=False)
    for place in (a, b):
        assert waiters.line.take_offer() is place
        waiters.line.leave(place, AT_ONCE)
        assert not waiters.line.hand(place, ("acquired", 1.0))
    assert waiters.line.undoing(a) == (ReleaseLock("x", "a"),)
    assert waiters.line.undoing(b) == ()


def test_after_sixteen_hand_offs_others_get_their_chance() -> None:
    waiters = Waiters()
    for number in range(17):
        waiters.offering(f"w{number}")
    chances = []
    for _ in range(17):
        chances.append(waiters.line.lets_others(1.0))
        if not chances[-1]:
            waiters.line.take_offer()
    assert chances == [False] * 16 + [True]
    assert not waiters.line.lets_others(1.0)


def test_after_a_twentieth_of_a_second_of_hand_offs_others_get_their_chance() -> None:
    waiters = Waiters()
    waiters.offering("a")
    assert not waiters.line.lets_others(1.0)
    waiters.line.take_offer()
    assert not waiters.line.lets_others(1.049)
    assert waiters.line.lets_others(1.051)


def test_a_mended_line_wakes_its_head_and_lets_all_others_check_their_state() -> None:
    waiters = Waiters()
    places = [waiters.parked(name) for name in "abc"]
    waiters.notified.clear()
    waiters.line.mend()
    assert set(waiters.notified) == {"a", "b", "c"}
    assert [waiters.line.next_step(place, 1.0, inf) for place in places] == [True, inf, inf]


def test_a_waiter_whose_wake_up_was_interrupted_is_woken_when_the_line_is_mended() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    notify = a.notify

    def struck() -> None:
        raise KeyboardInterrupt

    a.notify = struck
    with pytest.raises(KeyboardInterrupt):
        waiters.line.signal()
    a.notify = notify
    waiters.notified.clear()
    waiters.line.mend()
    assert waiters.notified.count("a") == 1
    assert [waiters.line.next_step(place, 1.0, inf) for place in (a, b)] == [True, True]


def test_leaving_again_after_an_exception_interrupted_it_passes_the_wake_up_on() -> None:
    waiters = Waiters()
    a, b = waiters.parked("a"), waiters.parked("b")
    waiters.line.signal()
    notify = b.notify

    def struck() -> None:
        raise KeyboardInterrupt

    b.notify = struck
    with pytest.raises(KeyboardInterrupt):
        waiters.line.leave(a, inf)
    b.notify = notify
    waiters.line.mend()
    assert not waiters.line.leave(a, inf)
    assert (len(waiters.line), waiters.line.next_step(b, 1.0, inf)) == (1, True)
