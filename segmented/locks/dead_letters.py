"""Dead letters: work that could not begin because its lock could not be reached, kept for a later replay.

They live anywhere but on that Redis: in a database (`SqlDeadLetters`), in a file (`FileDeadLetters`), or where you
want, by the six methods of `DeadLetters`.

Guarantees: a work is kept once an id, from the moment that `record` returns. A replay hands each letter to its handler
once, in the order of recording. An attempt is counted before the handler runs, so that a work that kills its process
stops being handed out at the cap, too. Not guaranteed: exactly once. A handler that was killed after its work and
before the letter was marked is called again by the next replay, with the same id; and two replays at the same time may
both hand out a letter. Let the handler take the work's own lock, and let its effect be one an id.
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
    """What is to be done: a name, a payload as JSON knows it, and an id under which it is kept once.

    Checked as it is made, so that what cannot be kept is refused on a good day. Raises InvalidInput.
    """

    name: str
    payload: Any = None
    work_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        """Refuse what no store can keep."""
        for text, what in ((self.name, "a work"), (self.work_id, "a work's id")):
            if len(checked_name(text, what)) > TEXT_LENGTH_MAX:
                message = f"the name of {what} has {len(text)} characters; {TEXT_LENGTH_MAX} are the most"
                raise InvalidInput(message)
        length = len(self.body)
        if length > PAYLOAD_LENGTH_MAX:
            message = f"the payload of {self.name!r} has {length:,} characters as JSON; {PAYLOAD_LENGTH_MAX:,} at most"
            raise InvalidInput(message)

    @property
    def body(self) -> str:
        """The payload as JSON, in ASCII."""
        try:
            return json.dumps(self.payload, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            message = f"the payload of {self.name!r} cannot be kept as JSON: {error}"
            raise InvalidInput(message) from error


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A work that is kept, and what became of it so far."""

    work: Work
    place: int
    """Grows with every letter."""
    attempts: int
    """How often it was handed to a handler, this time included."""
    last_error: str | None = None
    recordings: int = 1
    """How often the id was recorded while it was not done."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay ended."""

    done: int
    failed: int
    """Of these, the given up ones are handed out no more."""
    given_up: int
    recorded_again: int
    """Handlers that returned and had recorded their own work anew, because Redis was away again: it is not done."""


class DeadLetters(Protocol):
    """Where letters are kept. Each method is one step, safe for threads and processes; failures are StoreError."""

    def record(self, work: Work) -> None:
        """Keep a work until it is done. An id that is kept already is only counted; one that is done is left alone."""

    def newest(self) -> int:
        """Return the place of the newest letter; 0 when there is none."""

    def take(self, after: int, attempts_max: int) -> DeadLetter | None:
        """Count an attempt of the first letter past the place `after` that is not done and has one left."""

    def put_back(self, letter: DeadLetter) -> None:
        """Take back the attempt that `take` counted."""

    def mark_done(self, letter: DeadLetter) -> bool:
        """Hand it out no more; False, and nothing changes, if it was recorded again since it was taken."""

    def mark_failed(self, letter: DeadLetter, error: str) -> None:
        """Note why the attempt failed."""


def replay(
    letters: DeadLetters, handler: Callable[[DeadLetter], object], *, attempts_max: int = DEFAULT_ATTEMPTS_MAX
) -> Replayed:
    """Hand each letter that is there now to `handler` once; it is done when that returns, and kept when that raises.

    The handler may be the function that recorded the work: if Redis is away again and it records the same id anew, the
    letter stays and the attempt does not count. A letter that has failed `attempts_max` times is kept and handed out no
    more. If the handler's own lock cannot be reached, the replay ends with that LockUnreachable and the attempt does
    not count: call it again when Redis is back.
    """
    steps = _steps(letters, checked_attempts(attempts_max))
    found = _advanced(steps, None, is_first=True)
    while isinstance(found, DeadLetter):
        failure: Exception | None = None
        try:
            handler(found)
        except Exception as error:  # noqa: BLE001  # whatever it is, the letter is kept and the next one goes on
            failure = error
        found = _advanced(steps, failure)
    return found


async def async_replay(
    letters: DeadLetters,
    handler: Callable[[DeadLetter], Awaitable[object]],
    *,
    attempts_max: int = DEFAULT_ATTEMPTS_MAX,
) -> Replayed:
    """Do what `replay` does with a coroutine function; the letters' own steps run in a thread."""
    steps = _steps(letters, checked_attempts(attempts_max))
    found = await asyncio.to_thread(_advanced, steps, None, is_first=True)
    while isinstance(found, DeadLetter):
        failure: Exception | None = None
        try:
            await handler(found)
        except Exception as error:  # noqa: BLE001  # as above
            failure = error
        found = await asyncio.to_thread(_advanced, steps, failure)
    return found


def checked_attempts(attempts_max: int) -> int:
    """Refuse a cap that is none."""
    if not is_whole(attempts_max) or attempts_max < 1:
        message = f"attempts_max is {attempts_max!r}: give a whole number of 1 or more"
        raise InvalidInput(message)
    return attempts_max


Steps = Generator[DeadLetter, Exception | None, Replayed]


def _steps(letters: DeadLetters, attempts_max: int) -> Steps:
    """Yield one letter after the other, and be sent how its handler failed, or None."""
    place, done, failed, given_up, again = 0, 0, 0, 0, 0
    newest = letters.newest()  # a handler may record more, and more of those
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
    # Not by StopIteration, which cannot pass from a thread into a coroutine.
    try:
        return next(steps) if is_first else steps.send(failure)
    except StopIteration as stop:
        ended: Replayed = stop.value
        return ended
