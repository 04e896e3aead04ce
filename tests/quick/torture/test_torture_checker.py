"""The judge of the torture of locks, and its parts."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from segmented.errors import InvalidInput
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.quorum import AsyncQuorumStore
from tests.torture.judge import LOCKS_MUST_BE_ZERO, LockVerdict, check
from tests.torture.locks.options import FAULTS, KINDS, Kind, TortureOptions
from tests.torture.locks.resource import (
    EXCLUSIVE,
    PERMIT,
    SHARED,
    Cancelled,
    Died,
    Entered,
    Event,
    Finished,
    Left,
    PermitsSeen,
    Wrote,
)
from tests.torture.locks.rounds import CLASSES, Round, lock_of, tokens_of
from tests.torture.locks.run import report_of
from tests.torture.segments import UnusedSegments, WaitingBuyers

ONE_SERVER: Final = {"url": "redis://localhost"}
RESTART: Final = "only an embedded server can be restarted; leave restart out of --faults"
BAD_OPTIONS: Final[list[tuple[dict[str, Any], str]]] = [
    (
        {"kind": "spin"},
        "--kind 'spin' cannot be tortured; known are: lock, reentrant, fair, read_write, semaphore, multi, quorum",
    ),
    ({"seconds": 0.9}, "--seconds 0.9 must be between 1 and 86,400"),
    ({"seconds": float("nan")}, "--seconds nan must be between 1 and 86,400"),
    ({"processes": 1}, "--processes 1 must be between 2 and 64"),
    ({"threads": 65}, "--threads 65 must be between 1 and 64"),
    ({"faults": "kill, burn"}, "--faults 'burn' is unknown; known are: kill, pause, cut, cancel, restart, or all"),
    ({"faults": "all", **ONE_SERVER}, f"--url redis://localhost: {RESTART}"),
    ({"kind": "quorum", **ONE_SERVER}, "--url redis://localhost: quorum needs 3 servers, which are embedded ones"),
    ({"url": "redis+cluster://localhost:1"}, "--url redis+cluster://localhost:1: only a single server can be used"),
]

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


def broken(verdict: LockVerdict) -> dict[str, int]:
    """Return what must be 0 and is not."""
    return {name: getattr(verdict, name) for name in LOCKS_MUST_BE_ZERO if getattr(verdict, name)}


FIRST: Final = entered(1, 10.0, token=100)
"""Trusted until 11."""


SECOND: Final = entered(2, 11.2, token=101)
"""After the end of `FIRST`."""
OVERSLEPT: Final = entered(1, 10.0, token=None)
OWNER: Final = [entered(access, 10.0 + access, token=100, holder="owner") for access in (1, 2)]
READERS: Final = [entered(access, 10.0 + access / 10, token=100, mode=SHARED) for access in range(5)]
PERMITS: Final = [entered(access, 10.0, token=100 - access, mode=PERMIT) for access in range(4)]

CLEAN: Final[dict[str, tuple[Kind, list[Event], tuple[int, int]]]] = {
    "one after the other": (LOCK, [FIRST, wrote(FIRST, 10.1), left(FIRST, 10.3), entered(2, 10.4, token=101)], (2, 0)),
    "late writes of a holder that overslept are refused": (
        LOCK,
        [FIRST, SECOND, wrote(FIRST, 11.3, is_accepted=False), left(FIRST, 11.4, is_accepted=False)],
        (2, 2),
    ),
    "a holder that overslept is refused at the door": (
        LOCK,
        [SECOND, refused(entered(3, 11.3, token=100, held_since=10.0)), left(SECOND, 11.5)],
        (1, 1),
    ),
    "a lease that was over when it was handed over": (LOCK, [FIRST, entered(2, 10.5, token=101, until=10.5)], (2, 0)),
    "the successor of a refused one": (
        LOCK,
        [entered(2, 8.0, token=101), refused(entered(1, 10.0, token=100, held_since=9.5)), entered(3, 10.1, token=102)],
        (2, 1),
    ),
    "an owner twice with one token": (KINDS["reentrant"], [*OWNER], (2, 0)),
    "readers of one phase": (READ_WRITE, [*READERS], (5, 0)),
    "as many permits as there are, in any order": (SEMAPHORE, [*PERMITS[:3]], (3, 0)),
    "a permit after the end of others": (SEMAPHORE, [*PERMITS[:3], entered(9, 11.0, token=200, mode=PERMIT)], (4, 0)),
}
OVERLAP: Final = {"leases_overlapping": 1}
WRONGLY: Final = {"refused_wrongly": 1}
BROKEN: Final[dict[str, tuple[Kind, list[Event], dict[str, int]]]] = {
    "a successor while the lease is trusted": (LOCK, [FIRST, entered(2, 10.9, token=101)], OVERLAP),
    "a successor of a killed holder while its lease is trusted": (
        LOCK,
        [FIRST, Died(10.1, 1), entered(2, 10.9, token=101)],
        OVERLAP,
    ),
    "a lease that began before the other one ended": (
        LOCK,
        [FIRST, left(FIRST, 10.5), entered(2, 10.6, token=101, held_since=10.4)],
        OVERLAP,
    ),
    "a successor of a renewed lease": (
        LOCK,
        [FIRST, Wrote(10.8, 1, 11.8, is_accepted=True), entered(2, 11.2, token=101)],
        OVERLAP,
    ),
    "an older end of trust does not shorten a lease": (
        LOCK,
        [FIRST, Wrote(10.1, 1, 10.2, is_accepted=True), entered(2, 10.5, token=101)],
        OVERLAP,
    ),
    "two holders of one token at once": (
        LOCK,
        [entered(1, 10.0, token=100, until=10.0), entered(2, 10.5, token=100)],
        {"tokens_shared": 1, "accesses_overlapping": 1},
    ),
    "two holders of one token": (LOCK, [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=100)], {"tokens_shared": 1}),
    "a token that goes back": (LOCK, [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=99)], {"tokens_backwards": 1}),
    "a token that goes back beside its successor": (
        LOCK,
        [FIRST, entered(2, 11.5, token=99)],
        {"tokens_backwards": 1, "accesses_overlapping": 1},
    ),
    "late writes that are accepted": (
        LOCK,
        [FIRST, SECOND, wrote(FIRST, 11.3), left(FIRST, 11.4)],
        {"late_accepted": 2},
    ),
    "an entry refused without a reason": (LOCK, [refused(FIRST)], WRONGLY),
    "a write refused without a reason": (LOCK, [FIRST, wrote(FIRST, 10.1, is_accepted=False)], WRONGLY),
    "an end refused without a reason": (LOCK, [FIRST, left(FIRST, 10.1, is_accepted=False)], WRONGLY),
    "a writer beside a reader": (READ_WRITE, [READERS[1], entered(9, 10.5, token=101)], OVERLAP),
    "a reader beside a writer": (READ_WRITE, [FIRST, entered(2, 10.5, token=101, mode=SHARED)], OVERLAP),
    "a reader with the token of a writer": (
        READ_WRITE,
        [FIRST, left(FIRST, 10.1), entered(2, 10.5, token=100, mode=SHARED)],
        {"tokens_shared": 1},
    ),
    "one permit more": (SEMAPHORE, [*PERMITS], OVERLAP),
    "two permits with one token": (
        SEMAPHORE,
        [entered(access, 10.0, token=100, mode=PERMIT) for access in (1, 2)],
        {"tokens_shared": 1},
    ),
    "one permit more, seen on the server": (
        SEMAPHORE,
        [PermitsSeen(10.0, "a", 3), PermitsSeen(10.1, "a", 4)],
        {"permits_exceeded": 1},
    ),
    "leases without a fence": (QUORUM, [OVERSLEPT, entered(2, 10.9, token=None)], OVERLAP),
    "a cancellation that a task ignored": (
        LOCK,
        [Cancelled(1.0, "release", 1, is_heeded=False)],
        {"cancellations_lost": 1},
    ),
    "what a closed store left": (
        LOCK,
        [Finished(1.0, 1, 0, 0), Finished(1.0, 2, 2, 1), Finished(1.0, 3, 1, 0)],
        {"tasks_left": 3, "connections_open": 1},
    ),
}


def test_a_torture_in_which_nothing_is_wrong_is_clean() -> None:
    verdicts = {name: check(log, kind) for name, (kind, log, _) in CLEAN.items()}
    found = {name: (broken(one), (one.acquisitions, one.late_refused)) for name, one in verdicts.items()}
    assert found == {name: ({}, counts) for name, (_, _, counts) in CLEAN.items()}


def test_each_way_to_break_a_promise_is_found_and_no_other() -> None:
    found = {name: broken(check(log, kind)) for name, (kind, log, _) in BROKEN.items()}
    assert found == {name: expected for name, (_, _, expected) in BROKEN.items()}
    assert {name for counts in found.values() for name in counts} == set(LOCKS_MUST_BE_ZERO)


def judged(verdict: LockVerdict, *, left: dict[str, int] | None = None, crashes: Sequence[str] = ()) -> list[str]:
    report = report_of(LOCK, verdict, left or {}, {}, crashes=crashes)
    assert report.is_kept == (not report.broken)
    return report.broken


def test_every_count_that_must_be_0_breaks_it() -> None:
    for name in LOCKS_MUST_BE_ZERO:
        verdict = LockVerdict(acquisitions=1)
        setattr(verdict, name, 2)
        (sentence,) = judged(verdict)
        assert sentence.endswith(": 2, must be 0")


def test_it_is_broken_without_entries_or_a_known_fence_or_when_a_process_ended() -> None:
    assert judged(LockVerdict()) == ["no holder got in"]
    assert judged(LockVerdict(acquisitions=1, gap_max=5.6)) == ["no holder got in for 5.6 s; the maximum is 5.5 s"]
    assert judged(LockVerdict(acquisitions=1, pauses=1)) == [
        "no late write was refused: nothing is known about the fence"
    ]
    assert judged(LockVerdict(acquisitions=1), crashes=["process 3 ended with code 4: KeyError"]) == [
        "processes that ended by themselves: 1, must be 0",
        "process 3 ended with code 4: KeyError",
    ]


def test_every_kind_has_contenders_and_a_lock_for_tasks() -> None:
    assert list(CLASSES) == list(KINDS)
    for kind in KINDS:
        asyncio.run(_has_lock(kind))


async def _has_lock(kind: str) -> None:
    stores = [AsyncMemoryStore() for _ in range(3)]
    store = AsyncQuorumStore(stores) if kind == "quorum" else stores[0]
    drawn = Round(["a", "b"], "a", 5.0, renew=False, timeout=1.0)
    for seed in range(5):
        lock = lock_of(kind, store, drawn, Random(seed), in_task=True)
        async with lock.acquire() as lease:
            tokens = tokens_of(lease)
            assert set(tokens) <= {"a", "b"}
            assert all((token is None) == (kind == "quorum") for token in tokens.values())
            assert all(asked.holder for asked in lock.requests(lease, now=1.0, asked_at=0.5))


def test_an_option_that_cannot_be_is_refused_in_one_sentence() -> None:
    for options, sentence in BAD_OPTIONS:
        with pytest.raises(InvalidInput) as refusal:
            TortureOptions(**options)
        assert str(refusal.value) == sentence


def test_all_faults_are_all_and_only_cancellations_add_tasks() -> None:
    default, everything = TortureOptions(threads=3), TortureOptions(threads=3, faults="all")
    assert [fault for fault in FAULTS if default.injects(fault)] == ["kill", "pause"]
    assert [fault for fault in FAULTS if everything.injects(fault)] == list(FAULTS)
    assert (default.tasks, everything.tasks, TortureOptions(threads=3, faults="cancel, cut").tasks) == (0, 3, 3)


# The measure of unused segments, fed with samples: a segment is unused while it is free and the same buyer waits.


MS: Final = 1_000_000
Sample = tuple[int, set[int], int | None]
"""When it was taken, which segments were free, and since when the longest waiting buyer waits, in milliseconds."""
CASES: Final[dict[str, tuple[list[Sample], list[float]]]] = {
    "from the sample that sees it free to the one that sees it taken": (
        [(1, set(), 0), (2, {0}, 0), (9, {0}, 0), (12, set(), 0)],
        [10.0],
    ),
    "from the moment at which a buyer begins to wait": ([(1, {0}, None), (8, {0}, 5), (12, set(), 5)], [7.0]),
    "from the next buyer on, once the longest waiting one has left": (
        [(1, {0}, 1), (40, {0}, 35), (42, set(), 35)],
        [7.0],
    ),
    "until the last buyer has left": ([(1, {0}, 0), (7, {0}, None), (90, set(), 80)], [6.0]),
    "not while nobody waits": ([(1, {0, 1}, None), (90, set(), None)], []),
    "each segment on its own": ([(1, {0, 1}, 0), (5, {1}, 0), (9, set(), 0)], [4.0, 8.0]),
}


def test_a_segment_is_unused_while_it_is_free_and_the_same_buyer_waits() -> None:
    assert {name: measured(samples) for name, (samples, _) in CASES.items()} == {
        name: expected for name, (_, expected) in CASES.items()
    }


def measured(samples: list[Sample]) -> list[float]:
    unused = UnusedSegments(2)
    for at, free, longest in samples:
        unused.sample(at * MS, free, None if longest is None else longest * MS)
    return [one / MS for one in unused.unused_ns]


def test_killed_buyers_do_not_wait_and_paused_ones_wait_from_their_resumption(tmp_path: Path) -> None:
    waiting = WaitingBuyers(tmp_path / "waiting", 2, processes=2)
    waiting.note(0, 1, 7)
    WaitingBuyers(tmp_path / "waiting", 2).note(1, 0, 5)  # another process has mapped the same file
    assert waiting.longest_since([0, 0]) == 5
    assert waiting.longest_since([0, None]) == 7
    assert waiting.longest_since([0, 9]) == 7
    assert waiting.longest_since([8, 9]) == 8
    waiting.forget(0)
    assert waiting.longest_since([0, None]) is None
