"""Dead letters in databases: kept once, handed out once a replay, also by a process that is killed."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from segmented.errors import InvalidInput, LockUnreachable, StoreUnavailable
from segmented.locks.dead_letters import DeadLetter, Replayed, Work, replay
from segmented.locks.dead_letters_sql import SqlDeadLetters
from tests.fixtures.dead_letters import ids
from tests.support.paths import ROOT

SECONDS: Final = 120.0


def test_a_letter_is_kept_once_an_id_and_never_again_when_it_is_done(letters: SqlDeadLetters) -> None:
    letters.record(Work("ship", {"order": 1}, "one"))
    letters.record(Work("ship", {"order": 2}, "one"))
    letters.record(Work("ship", [1, "ü", None], "One"))
    assert [letter.work for letter in letters.pending()] == [
        Work("ship", {"order": 1}, "one"),
        Work("ship", [1, "ü", None], "One"),
    ]
    assert replay(letters, lambda _: None) == Replayed(2, 0, 0, 0)
    letters.record(Work("ship", {"order": 1}, "one"))
    assert ids(letters) == []


def test_a_failure_is_kept_with_its_count_and_given_up_at_the_cap(
    letters: SqlDeadLetters, reopen_letters: Callable[[], SqlDeadLetters]
) -> None:
    for work_id in ("a", "b", "c"):
        letters.record(Work("ship", work_id=work_id))
    handed: list[tuple[str, int]] = []

    def handle(letter: DeadLetter) -> None:
        handed.append((letter.work.work_id, letter.attempts))
        if letter.work.work_id == "b":
            raise ValueError(f"no van, attempt {letter.attempts}")

    assert replay(letters, handle, attempts_max=2) == Replayed(2, 1, 0, 0)
    assert replay(reopen_letters(), handle, attempts_max=2) == Replayed(0, 1, 1, 0)
    assert replay(letters, handle, attempts_max=2) == Replayed(0, 0, 0, 0)
    assert handed == [("a", 1), ("b", 1), ("c", 1), ("b", 2)]
    (left,) = letters.pending()
    assert (left.work.work_id, left.attempts, left.last_error) == ("b", 2, "ValueError: no van, attempt 2")
    assert replay(letters, handle, attempts_max=3) == Replayed(0, 1, 1, 0)


def test_a_replay_ends_when_redis_goes_away_again_and_the_attempt_does_not_count(letters: SqlDeadLetters) -> None:
    for work_id in ("a", "b", "c"):
        letters.record(Work("ship", work_id=work_id))
    handed: list[str] = []

    def handle(letter: DeadLetter) -> None:
        handed.append(letter.work.work_id)
        if letter.work.work_id == "b":
            raise LockUnreachable("order:b", "gone")  # what a store says

    for _ in range(3):
        with pytest.raises(LockUnreachable):
            replay(letters, handle, attempts_max=1)
    assert handed == ["a", "b", "b", "b"]
    assert [(letter.work.work_id, letter.attempts) for letter in letters.pending()] == [("b", 0), ("c", 0)]


def test_a_replay_that_is_killed_in_the_middle_is_at_least_once_with_the_same_id(
    letter_place: str, letters: SqlDeadLetters, tmp_path: Path
) -> None:
    for work_id in ("a", "b", "c"):
        letters.record(Work("ship", work_id=work_id))
    effects = tmp_path / "effects"
    command = [sys.executable, "-m", "tests.real.integration.dead_letter_worker", letter_place, str(effects)]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=SECONDS)
    assert done.returncode == -signal.SIGKILL
    assert effects.read_text().split() == ["a", "b"]

    handed: list[tuple[str, int]] = []
    assert replay(letters, lambda letter: handed.append((letter.work.work_id, letter.attempts))) == Replayed(2, 0, 0, 0)
    assert handed == [("b", 2), ("c", 1)]


def test_many_threads_and_stores_record_at_once_and_nothing_is_lost(
    reopen_letters: Callable[[], SqlDeadLetters],
) -> None:
    stores = [reopen_letters() for _ in range(4)]
    together = threading.Barrier(8)

    def record(number: int) -> None:
        together.wait(SECONDS)
        for count in range(10):
            stores[number % 4].record(Work("ship", number, f"{number}-{count}"))
            stores[number % 4].record(Work("ship", number, f"shared-{count}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(record, range(8)))
    found = ids(reopen_letters())
    assert len(found) == 90
    assert set(found) == {f"{who}-{count}" for who in [*range(8), "shared"] for count in range(10)}


def test_two_that_replay_at_once_never_take_the_same_attempt(reopen_letters: Callable[[], SqlDeadLetters]) -> None:
    one, other = reopen_letters(), reopen_letters()
    for number in range(50):
        one.record(Work("ship", work_id=str(number)))
    taken: list[tuple[str, int]] = []

    def take_all(letters: SqlDeadLetters) -> None:
        place = 0
        while (letter := letters.take(place, 1)) is not None:
            place = letter.place
            taken.append((letter.work.work_id, letter.attempts))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(take_all, [one, other]))
    assert sorted(taken) == sorted((str(number), 1) for number in range(50))


# --- bad input ---


def test_what_cannot_be_kept_is_refused_in_one_sentence() -> None:
    for make, sentence in (
        (lambda: Work(""), "a work needs a name"),
        (lambda: Work("a", work_id=""), "a work's id needs a name"),
        (lambda: Work("a", work_id="x" * 256), "the name of a work's id has 256 characters; the maximum is 255"),
        (lambda: Work("a", {1, 2}), "the payload of 'a' cannot be kept as JSON: Object of type set is not JSON"),
        (lambda: Work("a", float("nan")), "the payload of 'a' cannot be kept as JSON: Out of range float values"),
        (lambda: Work("a", "x" * 1_000_000), "the payload of 'a' has 1,000,002 characters as JSON; 1,000,000 at most"),
        (lambda: SqlDeadLetters("nonsense"), "dead letters need a database URL such as "),
        (
            lambda: SqlDeadLetters("nosuch://host/name"),
            "dead letters cannot be kept there: SQLAlchemy does not know 'nosuch'",
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            make()
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)


def test_a_database_that_does_not_answer_is_refused_before_the_outage(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="the dead letters: the database cannot be reached"):
        SqlDeadLetters(f"sqlite:///{tmp_path / 'missing' / 'letters.sqlite'}")
