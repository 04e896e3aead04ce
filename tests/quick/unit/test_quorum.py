"""A lock on several servers: votes and listeners."""

from itertools import product
from math import inf
from typing import TypeVar

import pytest

from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable, WrongKind
from segmented.models import Acquired, Held, HeldBy, Lost, Reestablished, Released, Renewed, ServerIdentity
from segmented.plans import Line
from segmented.protocol import AcquireVote, ReleaseVote, RenewVote
from segmented.protocol.vote import ROUND_REESTABLISHED
from segmented.stores.quorum import Heard, ServerListener
from segmented.stores.quorum.voting import AcquireTally, Membership, Poll, ReleaseTally, RenewTally, Rules, Tally
from segmented.stores.wakeups import ThreadWakeups

BallotT = TypeVar("BallotT", bound=Tally)

YES = Acquired(0, 1_000, replay=False)
GONE = StoreUnavailable("gone")


def by(mark: str, free_in_ms: int | None = 500) -> HeldBy:
    return HeldBy(free_in_ms, holder_mark=mark)


def acquired(*votes: object, servers: int = 3) -> AcquireTally:
    tally = AcquireTally(AcquireVote("lock", "h", 1_000, round=7), range(servers))
    return cast_votes(tally, *votes)


def renewed(*votes: object, servers: int = 3) -> RenewTally:
    return cast_votes(RenewTally(RenewVote("lock", "h", 1_000), range(servers)), *votes)


def released(*votes: object, servers: int = 3) -> ReleaseTally:
    return cast_votes(ReleaseTally(ReleaseVote("lock", "h"), range(servers)), *votes)


def cast_votes(tally: BallotT, *votes: object) -> BallotT:
    for server, vote in enumerate(votes):
        if vote is not None:
            tally.note(server, vote)
    return tally


@pytest.mark.parametrize("servers", [3, 4, 5])
@pytest.mark.parametrize("make", [acquired, renewed, released], ids=lambda make: make.__name__)
def test_a_decision_is_never_changed_by_the_votes_that_are_missing(make: object, servers: int) -> None:
    kinds = {
        "acquired": (YES, by("x"), GONE),
        "renewed": (Renewed(1_000), Lost(), Reestablished(), GONE),
        "released": (Released(), Lost(), GONE),
    }[make.__name__]  # type: ignore[attr-defined]  # a function
    for votes in product(kinds, repeat=servers):
        final = make(*votes, servers=servers)  # type: ignore[operator]  # a function
        assert final.is_decided
        for known in range(servers):
            tally = make(*votes[:known], servers=servers)  # type: ignore[operator]  # a function
            if tally.is_decided:
                assert told(tally) == told(final), (votes, known)


def told(tally: Tally) -> object:
    """Name the outcome: what a missing vote may change is only how a failure is worded."""
    if isinstance(tally, AcquireTally):
        return tally.is_acquired
    return type(tally.outcome())


# --- to acquire ---


def test_an_attempt_out_of_reach_is_decided_without_the_rest() -> None:
    assert acquired(by("x"), GONE).is_decided
    assert not acquired(by("x")).is_decided


def test_a_refusal_is_told_before_a_server_that_is_away() -> None:
    assert acquired(GONE, WrongKind("another kind")).failure().args == ("another kind",)


@pytest.mark.parametrize(
    ("votes", "has_holder"),
    [
        ((by("x"), by("x"), YES), True),
        ((by("x"), by("y"), YES), False),
        ((by("x"), by("y"), by("z")), False),
        ((by("x"), YES, GONE), None),
        ((by("x"), by("x"), GONE), True),
        ((YES, GONE, GONE), None),
    ],
)
def test_a_holder_is_known_by_a_majority_of_equal_marks(votes: tuple[object, ...], *, has_holder: bool | None) -> None:
    assert acquired(*votes).has_holder() is has_holder


def test_a_vote_that_did_not_come_in_may_be_the_one_that_lapses_in_time() -> None:
    assert acquired(by("x", 100), by("x", None), GONE).held(80) == Held(100)
    assert acquired(by("x", 60_000), by("x", 60_000), by("x", 300), None, None, servers=5).held(80) == Held(300)
    assert acquired(by("x", 60_000), by("x", 60_000), by("x", 60_000), GONE, servers=5).held(80) == Held(60_000)
    assert acquired(by("x", 60_000), by("x", 60_000), by("x", 300), YES, None, servers=5).held(80) == Held(300)


def test_an_attempt_is_taken_back_quietly_only_if_nobody_can_have_seen_its_majority() -> None:
    assert acquired(YES, by("x"), by("x")).giving_back() == ReleaseVote("lock", "h", 7, quiet=True)
    assert acquired(YES, by("x"), GONE).giving_back() == ReleaseVote("lock", "h", 7, quiet=False)
    assert acquired(YES, by("x"), by("x"), YES, None, servers=5).giving_back().quiet is False
    assert acquired(YES, by("x"), by("x"), YES, by("y"), servers=5).giving_back().quiet is True


# --- to renew, to release ---


def test_a_vote_that_was_taken_again_does_not_prove_that_the_lease_lived_on() -> None:
    assert renewed(Renewed(1), Reestablished(), Renewed(1)).outcome() == Renewed(1_000)
    lost = renewed(Renewed(1), Reestablished(), Lost())
    assert lost.outcome() == Lost()
    assert lost.giving_back() == ReleaseVote("lock", "h", ROUND_REESTABLISHED)


def test_a_renewal_that_failed_on_too_many_servers_is_neither_renewed_nor_lost() -> None:
    assert isinstance(renewed(Renewed(1), Lost(), GONE).outcome(), StoreUnavailable)
    assert renewed(Renewed(1), Lost(), GONE).giving_back() is None
    assert renewed(Renewed(1), Renewed(1), Lost()).giving_back() is None
    assert renewed(Lost(), Lost(), Lost()).giving_back() is None
    for last in (Renewed(1), GONE, None):  # a vote that the lease still had lives on, and would for the new time
        assert renewed(Lost(), Lost(), last).giving_back() == ReleaseVote("lock", "h", ROUND_REESTABLISHED)


def test_a_release_is_lost_only_if_no_majority_can_have_been_ours() -> None:
    assert released(Released(), Lost(), Released()).outcome() == Released()
    assert released(Lost(), Lost()).outcome() == Lost()
    assert isinstance(released(Released(), Lost(), GONE).outcome(), StoreUnavailable)
    assert not released(Released(), GONE).is_decided
    assert released(Lost(), GONE, GONE).is_decided


# --- the pieces around ---


def test_a_poll_wakes_who_waits_once_all_is_decided_or_all_have_voted() -> None:
    poll = Poll([acquired(), acquired()])
    woken: list[str] = []
    poll.when_over(lambda: woken.append("decided"), for_all=False)
    for index, server in ((0, 0), (0, 1), (1, 0)):
        poll.note(index, server, YES)
    assert woken == []
    poll.note(1, 1, YES)
    assert woken == ["decided"]
    poll.when_over(lambda: woken.append("all"), for_all=True)
    poll.note(0, 2, YES)
    assert woken == ["decided"]
    poll.note(1, 2, YES)
    assert woken == ["decided", "all"]


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (ServerIdentity("r1"), ServerIdentity("r1"), "are the same server"),
        (ServerIdentity("r1", "p"), ServerIdentity("r2", "p"), "are a primary and its replica"),
        (ServerIdentity("r1", "", frozenset("ab")), ServerIdentity("r2", "", frozenset("bc")), "belong to one cluster"),
    ],
)
def test_servers_that_are_not_independent_are_told_apart(one: ServerIdentity, other: ServerIdentity, why: str) -> None:
    membership = Membership(["first", "second", "third"])
    membership.admit(0, one)
    assert membership.conflict is None
    membership.admit(2, other)
    assert (
        str(membership.conflict) == f"first and third {why}: a quorum needs servers that are independent of each other"
    )
    assert isinstance(membership.conflict, InvalidInput)
    assert membership.unknown == [1]


def test_a_split_vote_is_repeated_sooner_than_one_that_too_few_answered() -> None:
    rules = Rules(3, 0.1, lambda _, most: most)
    assert rules.pause_ms(0.001, is_split=True) == 8
    assert rules.pause_ms(0.0, is_split=True) == 4
    assert rules.pause_ms(9.0, is_split=True) == 200
    assert rules.pause_ms(9.0, is_split=False) == 150
    assert Rules(3, 0.1, lambda least, _: least).pause_ms(9.0, is_split=False) == 50


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
