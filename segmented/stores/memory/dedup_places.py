"""Where the model of deduplication records keeps them: a place for each key, and for each message that needs one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from segmented.keys import once_keys
from segmented.models.dedup import KeyHeld, MessageCancelled, OutcomeKept
from segmented.stores.memory.dedup_records import Outcome, Place, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.models.dedup import RecordName, RunOn


@dataclass(frozen=True, slots=True)
class Spot:
    """A place, and how the claims name it."""

    record: RecordName
    message: str = ""


class DedupPlaces:
    """Places, what they say to those who ask, and when they lapse."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Tell `publish` each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._places: dict[Spot, Place] = {}
        self._claims: dict[Spot, float] = {}

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
        """Return the place, new when there is none; a new one that stays empty is not kept by `_keep`."""
        return self._found(record, message) or self._places.setdefault(Spot(record, message), Place())

    def _look(self, record: RecordName, message: str = "") -> Place:
        return self._found(record, message) or Place()

    def _run_place(self, record: RecordName, message: str, run_on: RunOn) -> tuple[Place, str]:
        where = "" if run_on == "key" else message
        return self._look(record, where), where

    def _keep(self, record: RecordName, message: str, remember_ms: int) -> None:
        """Let a place live for as long as anything in it may matter, and note when what holds it lapses."""
        spot, now = Spot(record, message), self._now()
        place = self._places[spot]
        ends: list[float] = [place.seat.until] if place.seat else []
        if place.run and place.run.on_lapse == "unknown":
            place.lapses_at = inf
        else:
            last = [*ends, *([place.run.until] if place.run else []), place.keep_until]
            place.lapses_at = max(now, *last) + remember_ms
        if place.run:
            ends = [inf] if place.run.is_doubted else [*ends, place.run.until]
        if ends:
            self._claims[spot] = min(ends)
        else:
            self._claims.pop(spot, None)

    def _tell(self, record: RecordName) -> None:
        self._publish(once_keys(record.namespace, record.key).freed)

    def _kept(self, outcome: Outcome) -> OutcomeKept:
        return OutcomeKept(outcome.message, outcome.kind, outcome.body, max(0, self._now() - outcome.at))

    def _finished(self, outcome: Outcome) -> OutcomeKept | MessageCancelled:
        return MessageCancelled() if outcome.kind == "cancelled" else self._kept(outcome)

    def _held_by_run(self, run: Run, *, goes_round: bool = False) -> KeyHeld:
        if run.is_unknown(self._now()):
            return KeyHeld(run.message, "unknown", None, run.attempt, goes_round=goes_round)
        free_in = max(0, run.until - self._now())
        return KeyHeld(run.message, "running", free_in, run.attempt, goes_round=goes_round)
