"""What a majority decides: votes in, a decision out."""

from __future__ import annotations

from itertools import product
from typing import TypeVar

import pytest

from segmented.errors import InvalidInput, StoreUnavailable, WrongKind
from segmented.models import Acquired, Held, HeldBy, Lost, Reestablished, Released, Renewed, ServerIdentity
from segmented.protocol import AcquireLock, AcquireVote, ReleaseVote, RenewVote
from segmented.protocol.vote import ROUND_REESTABLISHED
from segmented.stores.quorum.tally import (
    AcquireTally,
    Poll,
    ReleaseTally,
    RenewTally,
    Tally,
    majority_of,
    tally_of,
)
from segmented.stores.quorum.voting import Membership, Rules

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


@pytest.mark.parametrize(("servers", "majority"), [(3, 2), (4, 3), (5, 3), (15, 8)])
def test_a_majority_is_more_than_half(servers: int, majority: int) -> None:
    assert majority_of(servers) == majority


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


def test_two_of_three_votes_are_the_lock() -> None:
    assert not acquired(YES).is_decided
    assert acquired(YES, YES).outcome() == Acquired(0, 1_000, replay=False)
    assert acquired(YES, GONE, YES).outcome() == Acquired(0, 1_000, replay=False)


def test_the_first_vote_of_a_server_counts() -> None:
    tally = acquired(GONE)
    tally.note(0, YES)
    assert tally.votes == {0: GONE}


def test_an_attempt_out_of_reach_is_decided_without_the_rest() -> None:
    assert acquired(by("x"), GONE).is_decided
    assert not acquired(by("x")).is_decided


def test_too_few_answers_are_a_failure_that_names_the_first_one() -> None:
    assert str(acquired(YES, GONE, GONE).failure()) == "1 of 3 servers answered in time, 2 are needed: gone"
    assert str(acquired(YES).failure()) == "1 of 3 servers answered in time, 2 are needed"


def test_a_refusal_is_told_before_a_server_that_is_away() -> None:
    assert acquired(GONE, WrongKind("another kind")).failure().args == ("another kind",)


def test_a_name_of_another_kind_on_one_server_is_no_answer_but_undoes_no_majority() -> None:
    assert not acquired(YES, by("x"), WrongKind()).is_answered
    assert acquired(YES, YES, WrongKind()).is_acquired


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


def test_the_lock_is_free_when_enough_votes_have_lapsed() -> None:
    assert acquired(by("x", 300), by("x", 100), by("x", 200)).held(80) == Held(200)
    assert acquired(by("x", 300), by("x", 100), YES).held(80) == Held(100)
    assert acquired(by("x", None), by("x", None), YES).held(80) == Held(None)


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


def test_each_attempt_has_a_number_and_other_operations_have_no_ballot() -> None:
    tally = tally_of(AcquireVote("lock", "h", 1_000), range(3), 9)
    assert tally is not None
    assert tally.operation == AcquireVote("lock", "h", 1_000, round=9)
    assert tally_of(AcquireLock("lock", "h", 1_000), range(3), 9) is None


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


def test_a_server_that_restarted_is_still_itself() -> None:
    membership = Membership(["first", "second"])
    membership.admit(0, ServerIdentity("r1"))
    membership.admit(0, ServerIdentity("r2"))
    membership.admit(1, ServerIdentity("r1"))
    assert membership.conflict is None


def test_a_split_vote_is_repeated_sooner_than_one_that_too_few_answered() -> None:
    rules = Rules(3, 0.1, lambda _, most: most)
    assert rules.pause_ms(0.001, is_split=True) == 8
    assert rules.pause_ms(0.0, is_split=True) == 4
    assert rules.pause_ms(9.0, is_split=True) == 200
    assert rules.pause_ms(9.0, is_split=False) == 150
    assert Rules(3, 0.1, lambda least, _: least).pause_ms(9.0, is_split=False) == 50
