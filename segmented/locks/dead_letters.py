"""Dead letters: work that could not begin because its lock could not be reached, kept for a later replay.

They are kept outside that Redis: in a database (`SqlDeadLetters`), or in your own store that implements the six methods
of `DeadLetters`.

Guarantees: a work is kept once per id, from the moment that `record` returns. A replay hands each letter to its handler
once, in the order of recording. An attempt is counted before the handler runs, so a work that kills its process is also
no longer handed out after the maximum. Not guaranteed: exactly once. If a handler is killed after its work and before
the letter is marked, the next replay calls it again with the same id; and two concurrent replays may both hand out a
letter. Let the handler take the work's own lock, and make its effect idempotent by the id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import uuid4

from segmented.errors import InvalidInput, LockUnreachable
from segmented.locks.durations import checked_name, is_whole

TEXT_LENGTH_MAX: Final = 255
PAYLOAD_LENGTH_MAX: Final = 1_000_000
ERROR_LENGTH_MAX: Final = 1_000
DEFAULT_ATTEMPTS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Work:
    """Work to do: a name, a JSON payload, and an id under which it is kept once.

    Raises InvalidInput on creation for work that cannot be kept, so that this does not surface only in an outage.
    """

    name: str
    payload: Any = None
    work_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        for field_name, what in (("name", "a work"), ("work_id", "a work's id")):
            text = checked_name(getattr(self, field_name), what)
            if len(text) > TEXT_LENGTH_MAX:
                raise InvalidInput(f"the name of {what} has {len(text)} characters; the maximum is {TEXT_LENGTH_MAX}")
            object.__setattr__(self, field_name, text)
        length = len(self.body)
        if length > PAYLOAD_LENGTH_MAX:
            message = f"the payload of {self.name!r} has {length:,} characters as JSON; {PAYLOAD_LENGTH_MAX:,} at most"
            raise InvalidInput(message)

    @property
    def body(self) -> str:
        """Return the payload as JSON, in ASCII."""
        try:
            return json.dumps(self.payload, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the payload of {self.name!r} cannot be kept as JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A work that is kept, with its state so far."""

    work: Work
    place: int
    """Grows with every letter."""
    attempts: int
    """How often it was handed to a handler, the current attempt included."""
    last_error: str | None = None
    recordings: int = 1
    """How often the id was recorded while the work was not done."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    done: int
    failed: int
    """Includes the letters `given_up`, which are not handed out again."""
    given_up: int
    recorded_again: int
    """Letters whose handler returned after recording the same work again, because Redis was down: they are not done."""


class DeadLetters(Protocol):
    """A store of letters. Each method is atomic, across threads and processes; failures raise StoreError."""

    def record(self, work: Work) -> None:
        """Keep a work until it is done. An id that is already kept is only counted; one that is done is ignored."""

    def newest(self) -> int:
        """Return the place of the newest letter, or 0 if there is none."""

    def take(self, after: int, attempts_max: int) -> DeadLetter | None:
        """Count an attempt of the first letter after place `after` that is open and has one left, and return it."""

    def put_back(self, letter: DeadLetter) -> None:
        """Undo the attempt that `take` counted."""

    def mark_done(self, letter: DeadLetter) -> bool:
        """Mark it as done and return True; return False, unchanged, if it was recorded again since it was taken."""

    def mark_failed(self, letter: DeadLetter, error: str) -> None:
        """Store why the attempt failed."""


def replay(
    letters: DeadLetters, handler: Callable[[DeadLetter], object], *, attempts_max: int = DEFAULT_ATTEMPTS_MAX
) -> Replayed:
    """Hand each present letter to `handler` once. A letter is done when the handler returns, and kept when it raises.

    The handler may be the function that recorded the work: if Redis is down again and it records the same id again, the
    letter stays and the attempt does not count. A letter that has failed `attempts_max` times is kept but not handed
    out again. If the handler's own lock is unreachable, the replay raises that LockUnreachable and the attempt does not
    count: call it again when Redis is back.
    """
    steps = _steps(letters, checked_attempts(attempts_max))
    found = _advanced(steps, None, is_first=True)
    while isinstance(found, DeadLetter):
        failure: Exception | None = None
        try:
            handler(found)
        except Exception as error:  # noqa: BLE001  # after any error the letter is kept and the next one follows
            failure = error
        found = _advanced(steps, failure)
    return found


async def async_replay(
    letters: DeadLetters,
    handler: Callable[[DeadLetter], Awaitable[object]],
    *,
    attempts_max: int = DEFAULT_ATTEMPTS_MAX,
) -> Replayed:
    """Hand each present letter to a coroutine function once, as `replay` does; letters are read in a thread."""
    steps = _steps(letters, checked_attempts(attempts_max))
    found = await asyncio.to_thread(_advanced, steps, None, is_first=True)
    while isinstance(found, DeadLetter):
        failure: Exception | None = None
        try:
            await handler(found)
        except Exception as error:  # noqa: BLE001  # after any error the letter is kept and the next one follows
            failure = error
        found = await asyncio.to_thread(_advanced, steps, failure)
    return found


def checked_attempts(attempts_max: int) -> int:
    """Return the maximum of attempts. Raises InvalidInput unless it is a whole number of 1 or more."""
    if not is_whole(attempts_max) or attempts_max < 1:
        raise InvalidInput(f"attempts_max is {attempts_max!r}: give a whole number of 1 or more")
    return attempts_max


Steps = Generator[DeadLetter, Exception | None, Replayed]


def _steps(letters: DeadLetters, attempts_max: int) -> Steps:
    """Yield one letter after the other; the caller sends the handler's error, or None, for each."""
    place, done, failed, given_up, again = 0, 0, 0, 0, 0
    newest = letters.newest()  # letters that handlers record meanwhile wait for the next replay
    while place < newest and (letter := letters.take(place, attempts_max)) is not None:
        place = letter.place
        if place > newest:
            letters.put_back(letter)
            break
        failure = yield letter
        if isinstance(failure, LockUnreachable):
            letters.put_back(letter)
            raise failure
        if failure is None and letters.mark_done(letter):
            done += 1
        elif failure is None:
            letters.put_back(letter)
            again += 1
        else:
            letters.mark_failed(letter, f"{type(failure).__name__}: {failure}"[:ERROR_LENGTH_MAX])
            failed += 1
            given_up += letter.attempts >= attempts_max
    return Replayed(done, failed, given_up, again)


def _advanced(steps: Steps, failure: Exception | None, *, is_first: bool = False) -> DeadLetter | Replayed:
    # Returns the result: StopIteration cannot pass from a thread into a coroutine.
    try:
        return next(steps) if is_first else steps.send(failure)
    except StopIteration as stop:
        ended: Replayed = stop.value
        return ended
