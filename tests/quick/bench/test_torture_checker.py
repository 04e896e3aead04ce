"""The judge of a torture, with logs written by hand: each broken promise is found, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from bench.proof.torture.admin import Leftovers
from bench.proof.torture.checker import MUST_BE_ZERO, Verdict, check
from bench.proof.torture.events import (
    EXCLUSIVE,
    PERMIT,
    SHARED,
    Began,
    Cancelled,
    Died,
    Ended,
    Entered,
    Event,
    FaultInjected,
    Finished,
    Left,
    Missed,
    PermitsSeen,
    Restarted,
    Wrote,
    line_of,
    read_events,
)
from bench.proof.torture.options import KINDS
from bench.proof.torture.results import TortureResults

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCK: Final = KINDS["lock"]
READ_WRITE: Final = KINDS["read_write"]
SEMAPHORE: Final = KINDS["semaphore"]
QUORUM: Final = KINDS["quorum"]


def entered(  # one field each
    access: int,
    at: float,
    *,
    token: int | None,
    holder: str = "",
    mode: str = EXCLUSIVE,
    until: float | None = None,
    held_since: float | None = None,
) -> Entered:
    """Enter at once after acquiring, with a lease that is trusted for a second."""
    since = at if held_since is None else held_since
    trusted_until = since + 1.0 if until is None else until
    return Entered(
        at,
        access,
        "a",
        token,
        holder or f"holder-{access}",
        mode,
        process=1,
        held_since=since,
        trusted_until=trusted_until,
        waited=0.5,
        is_accepted=True,
    )


def refused(entry: Entered) -> Entered:
    return replace(entry, is_accepted=False)


def left(entry: Entered, at: float, *, is_accepted: bool = True) -> Left:
    return Left(at, entry.access, entry.trusted_until, is_accepted)


def wrote(entry: Entered, at: float, *, is_accepted: bool = True) -> Wrote:
    return Wrote(at, entry.access, entry.trusted_until, is_accepted)


def broken(verdict: Verdict) -> dict[str, int]:
    """Return what must be 0 and is not."""
    return {name: getattr(verdict, name) for name in MUST_BE_ZERO if getattr(verdict, name)}


FIRST: Final = entered(1, 10.0, token=100)
"""Trusted until 11."""


def test_one_after_the_other_is_clean() -> None:
    second = entered(2, 10.4, token=101)
    verdict = check([FIRST, wrote(FIRST, 10.1), left(FIRST, 10.3), second, left(second, 10.5)], LOCK)
    assert (broken(verdict), verdict.acquisitions, verdict.late_refused) == ({}, 2, 0)


def test_a_holder_that_overslept_is_succeeded_and_its_late_writes_are_refused() -> None:
    second = entered(2, 11.2, token=101)
    log: list[Event] = [
        FIRST,
        second,
        wrote(FIRST, 11.3, is_accepted=False),
        left(FIRST, 11.4, is_accepted=False),
        left(second, 11.5),
    ]
    verdict = check(log, LOCK)
    assert (broken(verdict), verdict.acquisitions, verdict.late_refused) == ({}, 2, 2)


def test_an_overslept_holder_that_comes_after_its_successor_is_refused_at_the_door() -> None:
    second = entered(2, 11.2, token=101)
    late = refused(entered(3, 11.3, token=100, held_since=10.0))
    assert broken(check([second, late, left(second, 11.5)], LOCK)) == {}


def test_a_successor_while_the_lease_is_trusted_is_an_overlap_of_leases() -> None:
    verdict = check([FIRST, entered(2, 10.9, token=101)], LOCK)
    assert broken(verdict) == {"leases_overlapping": 1}


def test_a_killed_holders_lease_counts_to_its_end() -> None:
    log: list[Event] = [FIRST, Died(10.1, 1), entered(2, 10.9, token=101)]
    assert broken(check(log, LOCK)) == {"leases_overlapping": 1}


def test_a_lease_that_began_before_the_other_one_ended_is_found_though_its_holder_came_later() -> None:
    log: list[Event] = [FIRST, left(FIRST, 10.5), entered(2, 10.6, token=101, held_since=10.4)]
    assert broken(check(log, LOCK)) == {"leases_overlapping": 1}


def test_a_renewed_lease_is_trusted_for_longer() -> None:
    log: list[Event] = [FIRST, Wrote(10.8, 1, 11.8, is_accepted=True), entered(2, 11.2, token=101)]
    assert broken(check(log, LOCK)) == {"leases_overlapping": 1}


def test_an_older_end_of_trust_that_comes_later_does_not_shorten_a_lease() -> None:
    log: list[Event] = [FIRST, Wrote(10.1, 1, 10.2, is_accepted=True), entered(2, 10.5, token=101)]
    assert broken(check(log, LOCK)) == {"leases_overlapping": 1}


def test_a_lease_that_was_over_when_it_was_handed_over_overlaps_with_none() -> None:
    assert broken(check([FIRST, entered(2, 10.5, token=101, until=10.5)], LOCK)) == {}


def test_a_holder_that_was_refused_may_be_succeeded_at_once() -> None:
    late = refused(entered(1, 10.0, token=100, held_since=9.5))
    successor = entered(3, 10.1, token=102)
    verdict = check([entered(2, 8.0, token=101), late, successor], LOCK)
    assert broken(verdict) == {}


def test_two_holders_of_one_token_are_found_and_overlap() -> None:
    log = [entered(1, 10.0, token=100, until=10.0), entered(2, 10.5, token=100)]
    assert broken(check(log, LOCK)) == {"tokens_shared": 1, "accesses_overlapping": 1}


def test_two_holders_of_one_token_one_after_the_other_are_found_too() -> None:
    log: list[Event] = [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=100)]
    assert broken(check(log, LOCK)) == {"tokens_shared": 1}


def test_an_accepted_token_that_goes_back_is_found() -> None:
    log: list[Event] = [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=99)]
    assert broken(check(log, LOCK)) == {"tokens_backwards": 1}


def test_an_accepted_token_that_goes_back_beside_its_successor_overlaps_too() -> None:
    log: list[Event] = [FIRST, entered(2, 11.5, token=99)]
    assert broken(check(log, LOCK)) == {"tokens_backwards": 1, "accesses_overlapping": 1}


def test_a_late_write_that_is_accepted_is_found() -> None:
    second = entered(2, 11.2, token=101)
    log: list[Event] = [FIRST, second, wrote(FIRST, 11.3), left(FIRST, 11.4)]
    assert broken(check(log, LOCK)) == {"late_accepted": 2}


@pytest.mark.parametrize(
    "log",
    [
        [refused(FIRST)],
        [FIRST, wrote(FIRST, 10.1, is_accepted=False)],
        [FIRST, left(FIRST, 10.1, is_accepted=False)],
    ],
)
def test_a_refusal_without_a_reason_is_found(log: list[Event]) -> None:
    assert broken(check(log, LOCK)) == {"refused_wrongly": 1}


def test_an_owner_may_be_inside_twice_with_one_token() -> None:
    log = [entered(1, 10.0, token=100, holder="owner"), entered(2, 10.1, token=100, holder="owner")]
    assert broken(check(log, KINDS["reentrant"])) == {}


def test_readers_of_one_phase_share_their_token_and_the_room() -> None:
    log = [entered(access, 10.0 + access / 10, token=100, mode=SHARED) for access in range(5)]
    assert broken(check(log, READ_WRITE)) == {}


def test_a_writer_beside_a_trusted_reader_is_found() -> None:
    log = [entered(1, 10.0, token=100, mode=SHARED), entered(2, 10.5, token=101)]
    assert broken(check(log, READ_WRITE)) == {"leases_overlapping": 1}


def test_a_reader_beside_a_trusted_writer_is_found() -> None:
    log = [FIRST, entered(2, 10.5, token=101, mode=SHARED)]
    assert broken(check(log, READ_WRITE)) == {"leases_overlapping": 1}


def test_a_reader_with_the_token_of_a_writer_is_found() -> None:
    log: list[Event] = [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=100, mode=SHARED)]
    assert broken(check(log, READ_WRITE)) == {"tokens_shared": 1}


def permits(count: int) -> list[Event]:
    return [entered(access, 10.0, token=100 - access, mode=PERMIT) for access in range(count)]


def test_as_many_permits_as_there_are_may_live_in_any_order() -> None:
    assert broken(check(permits(3), SEMAPHORE)) == {}


def test_one_permit_more_is_found() -> None:
    assert broken(check(permits(4), SEMAPHORE)) == {"leases_overlapping": 1}


def test_a_permit_that_has_lapsed_does_not_count() -> None:
    assert broken(check([*permits(3), entered(9, 11.0, token=200, mode=PERMIT)], SEMAPHORE)) == {}


def test_two_permits_with_one_token_are_found() -> None:
    log = [entered(access, 10.0, token=100, mode=PERMIT) for access in (1, 2)]
    assert broken(check(log, SEMAPHORE)) == {"tokens_shared": 1}


def test_a_look_at_the_server_that_saw_one_permit_more_is_found() -> None:
    verdict = check([PermitsSeen(10.0, "a", 3), PermitsSeen(10.1, "a", 4)], SEMAPHORE)
    assert (broken(verdict), verdict.permits_seen_max) == ({"permits_exceeded": 1}, 4)


def test_without_a_fence_the_leases_alone_exclude_each_other() -> None:
    assert broken(check([entered(1, 10.0, token=None), entered(2, 10.9, token=None)], QUORUM)) == {
        "leases_overlapping": 1
    }


def test_without_a_fence_late_writes_are_counted_and_no_promise_is_broken() -> None:
    overslept = entered(1, 10.0, token=None)
    log: list[Event] = [overslept, wrote(overslept, 10.9), entered(2, 11.1, token=None), wrote(overslept, 11.2)]
    verdict = check(log, QUORUM)
    assert (broken(verdict), verdict.late_unfenced) == ({}, 1)
    renewed: list[Event] = [overslept, Wrote(11.1, 1, 12.0, is_accepted=True)]
    assert check(renewed, QUORUM).late_unfenced == 0


def test_the_longest_time_without_an_entry_counts_from_the_beginning_to_the_end_on_every_name() -> None:
    assert check([Began(10.0, ["a"]), entered(1, 13.0, token=1), Ended(14.0)], LOCK).gap_max == 3.0
    assert check([Began(10.0, ["a"]), entered(1, 11.0, token=1), Ended(14.0)], LOCK).gap_max == 3.0
    assert check([entered(1, 3.0, token=1), Began(10.0, ["a"]), Ended(14.0)], LOCK).gap_max == 4.0
    assert check([Began(10.0, ["a", "b"]), entered(1, 12.0, token=1), Ended(14.0)], LOCK).gap_max == 4.0


def test_deeds_and_misses_are_counted() -> None:
    deeds = ["killed", "killed", "paused", "resumed", "cut", "cut", "cut"]
    log: list[Event] = [FaultInjected(1.0, deed, 1) for deed in deeds]
    log += [Missed(1.0, "a", "timeout", 0.1), Missed(1.0, "a", "timeout", 0.1), Missed(1.0, "a", "late", 0.1)]
    verdict = check(log, LOCK)
    assert (verdict.kills, verdict.pauses, verdict.cuts, dict(verdict.missed)) == (2, 1, 3, {"timeout": 2, "late": 1})


def test_cancellations_are_counted_by_their_moment_and_one_that_a_task_ignored_is_found() -> None:
    moments = ["acquire", "acquire", "body", "group"]
    log: list[Event] = [Cancelled(1.0, moment, 1, is_heeded=True) for moment in moments]
    verdict = check(log, LOCK)
    assert (broken(verdict), dict(verdict.cancellations)) == ({}, {"acquire": 2, "body": 1, "group": 1})
    assert broken(check([*log, Cancelled(1.0, "release", 1, is_heeded=False)], LOCK)) == {"cancellations_lost": 1}


def test_tasks_and_connections_that_a_closed_store_left_are_found() -> None:
    log: list[Event] = [Finished(1.0, 1, 0, 0), Finished(1.0, 2, 2, 1), Finished(1.0, 3, 1, 0)]
    assert broken(check(log, LOCK)) == {"tasks_left": 3, "connections_open": 1}


def test_a_server_that_was_away_allows_that_much_more_time_without_an_entry() -> None:
    verdict = check([Began(10.0, ["a"]), Restarted(12.0, 0.7), Restarted(14.0, 0.2), Ended(16.1)], LOCK)
    assert (verdict.restarts, verdict.away_max) == (2, 0.7)
    verdict.acquisitions = 1
    assert judged(verdict) == []
    verdict.gap_max = 6.3
    assert judged(verdict) == ["no holder got in for 6.3 s; the maximum is 6.2 s"]


def test_a_log_is_read_as_it_was_written() -> None:
    log: list[Event] = [
        Began(1.0, ["a"]),
        FIRST,
        wrote(FIRST, 10.1),
        left(FIRST, 10.2),
        Died(10.3, 1),
        Missed(10.4, "a", "timeout", 0.5),
        FaultInjected(10.5, "killed", 3),
        Cancelled(10.5, "body", 3, is_heeded=True),
        Restarted(10.55, 0.7),
        Finished(10.56, 3, 0, 0),
        PermitsSeen(10.6, "a", 2),
        Ended(11.0),
    ]
    assert list(read_events(map(line_of, log))) == log


def judged(verdict: Verdict, *, leftovers: Leftovers | None = None, crashes: Iterable[str] = ()) -> list[str]:
    results = TortureResults(
        kind=LOCK,
        verdict=verdict,
        leftovers=leftovers or Leftovers(),
        processes_started=8,
        stuck=0,
        crashes=tuple(crashes),
        conditions={},
    )
    assert results.is_kept == (not results.broken)
    return results.broken


def test_a_torture_in_which_every_promise_held_is_kept() -> None:
    assert judged(Verdict(acquisitions=1, pauses=1, late_refused=1, gap_max=5.5)) == []


@pytest.mark.parametrize("name", MUST_BE_ZERO)
def test_every_count_that_must_be_0_breaks_it(name: str) -> None:
    verdict = Verdict(acquisitions=1)
    setattr(verdict, name, 2)
    (sentence,) = judged(verdict)
    assert sentence.endswith(": 2, must be 0")


@pytest.mark.parametrize("name", ["immortal_keys", "held_names", "channels", "connections", "processes"])
def test_whatever_is_left_breaks_it(name: str) -> None:
    (sentence,) = judged(Verdict(acquisitions=1), leftovers=Leftovers(**{name: 1}))
    assert sentence.endswith(": 1, must be 0")


def test_it_is_broken_when_nobody_got_in_or_nothing_is_known_about_the_fence_or_a_process_ended() -> None:
    assert judged(Verdict()) == ["no holder got in"]
    assert judged(Verdict(acquisitions=1, gap_max=5.6)) == ["no holder got in for 5.6 s; the maximum is 5.5 s"]
    assert judged(Verdict(acquisitions=1, pauses=1)) == ["no late write was refused: nothing is known about the fence"]
    assert judged(Verdict(acquisitions=1), crashes=["process 3 ended with code 4: KeyError"]) == [
        "processes that ended by themselves: 1, must be 0",
        "process 3 ended with code 4: KeyError",
    ]
