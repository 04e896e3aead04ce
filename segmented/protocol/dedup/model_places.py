"""Storage of the deduplication model: a place for each key, and for each message that needs one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from segmented.models.dedup import KeyHeld, MessageCancelled, NamespacesPage, OutcomeKept
from segmented.once_keys import once_keys
from segmented.protocol.dedup.model_records import Outcome, Place, Run, differs

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.models.dedup import RecordName, RunOn
    from segmented.protocol import ListNamespaces


@dataclass(frozen=True, slots=True)
class Spot:
    """A place and its name in the claims."""

    record: RecordName
    message: str = ""


class DedupPlaces:
    """Places, their answers to queries, and their expiry."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create an empty storage that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._places: dict[Spot, Place] = {}
        self._claims: dict[Spot, float] = {}

    def list_namespaces(self, operation: ListNamespaces) -> NamespacesPage:
        """Return all namespaces in one page."""
        known = {
            spot.record.namespace for spot in self._places if spot.record.key == operation.key and not spot.message
        }
        held = {spot.record.namespace for spot in self._claims}
        return NamespacesPage(tuple(sorted(known if operation.key else held)), 0)

    def _now(self) -> int:
        return int(self._clock.now() * 1000)

    def _found(self, record: RecordName, message: str = "") -> Place | None:
        spot = Spot(record, message)
        place = self._places.get(spot)
        if place is not None and place.lapses_at <= self._now():
            del self._places[spot]
            return None
        return place

    def _place(self, record: RecordName, message: str = "") -> Place:
        """Return the place or a new one; `_keep` drops a new one that stays empty."""
        return self._found(record, message) or self._places.setdefault(Spot(record, message), Place())

    def _look(self, record: RecordName, message: str = "") -> Place:
        return self._found(record, message) or Place()

    def _run_place(self, record: RecordName, message: str, run_on: RunOn) -> tuple[Place, str]:
        where = "" if run_on == "key" else message
        return self._look(record, where), where

    def _keep(self, record: RecordName, message: str, remember_ms: int) -> None:
        """Keep a place for as long as anything in it may matter plus `remember_ms`; note its claim."""
        place = self._found(record, message)
        if place and place.run and place.run.on_lapse == "unknown":
            place.lapses_at = inf
        elif place:
            ends = (place.seat.until if place.seat else 0, place.run.until if place.run else 0, place.keep_until)
            place.lapses_at = max(self._now(), *ends) + remember_ms
        self._note_claim(record, message)

    def _note_claim(self, record: RecordName, message: str) -> None:
        """Note when the claim on a place expires."""
        spot, place = Spot(record, message), self._look(record, message)
        ends: list[float] = [place.seat.until] if place.seat else []
        if place.run:
            ends = [inf] if place.run.is_doubted else [*ends, place.run.until]
        if ends:
            self._claims[spot] = min(ends)
        else:
            self._claims.pop(spot, None)

    def _noted(self, record: RecordName, message: str, left_ms: int) -> Place:
        """Return the place of a message for writing; it lives for at least `left_ms`."""
        place = self._found(record, message)
        until = self._now() + left_ms
        if place is None:
            place = self._places.setdefault(Spot(record, message), Place(lapses_at=until))
        place.lapses_at = max(place.lapses_at, until)
        return place

    def _take_place(self, record: RecordName, run: Run | None, seen: str, successor: str, remember_ms: int) -> None:
        """Make a message whose worker died a repeat of the one that takes its place, if both ask for the same."""
        died = None if run is None else (run.message, run.seen)
        if died is None:
            place = self._look(record)
            died, place.reaped = place.reaped, None
        if died and died[0] != successor and not differs(died[1], seen):
            its = self._noted(record, died[0], remember_ms)
            its.replaced_by, its.is_orphan = successor, True

    def _drop_run(self, place: Place, remember_ms: int) -> None:
        """End a run; the place that was kept because of it may expire again."""
        place.run = None
        if place.lapses_at == inf:
            place.lapses_at = self._now() + remember_ms

    def _forget(self, record: RecordName, message: str, *names: str) -> None:
        """Drop some fields of a message's place, and the place if it is empty then."""
        own = self._found(record, message)
        if own:
            for name in names:
                setattr(own, name, getattr(Place(), name))
            if own == Place(lapses_at=own.lapses_at):
                del self._places[Spot(record, message)]

    def _note_attempt(self, record: RecordName, run: Run, remember_ms: int) -> None:
        """Remember the attempt of a run without an outcome, to recognise copies of earlier attempts."""
        if run.attempt > 0:
            self._noted(record, run.message, remember_ms).awaited = run.attempt

    def _note_cancelled(self, record: RecordName, message: str, due: int, remember_ms: int) -> None:
        """Make sure that a message never begins, neither now nor when it is due."""
        own = self._noted(record, message, max(0, due - self._now()) + remember_ms)
        own.outcome = Outcome(message, 0, "", self._now(), "cancelled", "")

    def _move_outcome(self, record: RecordName, next_message: str, remember_ms: int) -> None:
        """Keep the last outcome for copies of its message, before another one replaces it."""
        last = self._look(record).outcome
        left = last.at + remember_ms - self._now() if last else 0
        if last and left > 0 and last.message != next_message:
            self._noted(record, last.message, left).outcome = last

    def _tell(self, record: RecordName) -> None:
        self._publish(once_keys(record.namespace, record.key).freed)

    def _kept(self, outcome: Outcome) -> OutcomeKept:
        return OutcomeKept(outcome.message, outcome.kind, outcome.body, max(0, self._now() - outcome.at))

    def _finished(self, outcome: Outcome) -> OutcomeKept | MessageCancelled:
        return MessageCancelled() if outcome.kind == "cancelled" else self._kept(outcome)

    def _held_by_run(self, run: Run) -> KeyHeld:
        if run.is_unknown(self._now()):
            return KeyHeld(run.message, "unknown", None, run.attempt)
        return KeyHeld(run.message, "running", max(0, run.until - self._now()), run.attempt)
