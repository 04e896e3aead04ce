"""The model of deduplication records: cancellations, operators' commands and the reaper."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from segmented.models.dedup import (
    Claim,
    Freed,
    LivingRun,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    Reaped,
    RecordState,
    RunFinished,
    Seat,
    StillRunning,
)
from segmented.once_keys import once_keys, once_partition
from segmented.protocol.dedup.model_places import DedupPlaces, Spot
from segmented.protocol.dedup.model_records import Outcome, Run

if TYPE_CHECKING:
    from segmented.protocol.dedup import operations as op


class DedupUpkeep(DedupPlaces):
    """Changes to a record from outside its runs."""

    def cancel(self, operation: op.CancelMessage) -> MessageCancelled | StillRunning | OutcomeKept:
        """Prevent a message from beginning."""
        now, record, message = self._now(), operation.record, operation.message
        for place in (self._look(record), self._look(record, message)):
            if place.outcome and place.outcome.message == message:
                return self._finished(place.outcome)
        working, _ = self._run_place(record, message, operation.run_on)
        run = working.run
        if run and run.message == message:
            if run.is_live(now) and not operation.is_dead:
                return StillRunning(run.until - now)
            if run.on_lapse == "unknown":
                working.run = replace(run, is_doubted=True)
            else:
                self._drop_run(working, operation.remember_ms)
        found, due = self._found(record), now
        if found and found.seat and found.seat.message == message:
            due, found.seat = found.seat.until, None
        self._note_cancelled(record, message, due, operation.remember_ms)
        self._note_claim(record, message)
        if found:
            self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return MessageCancelled()

    def free(self, operation: op.FreeKey) -> Freed:
        """End the claim on a key, or the run of one message."""
        now, record, message = self._now(), operation.record, operation.message
        place = self._look(record, message)
        run, freed = place.run, Freed(None, None)
        if run and (run.is_live(now) or run.is_unknown(now)):
            freed = Freed("unknown" if run.is_unknown(now) else "running", run.message)
        elif place.seat and place.seat.until > now:
            freed = Freed("waiting", place.seat.message)
        elif place.outcome:
            freed = Freed("done", place.outcome.message)
        if run:
            self._drop_run(place, operation.remember_ms)
            self._note_attempt(record, run, operation.remember_ms)
        if not message:
            self._move_outcome(record, "", operation.remember_ms)
            place.seat, place.outcome, place.keep_until = None, None, 0
            self._keep(record, "", operation.remember_ms)
        else:
            self._note_claim(record, message)
        self._tell(record)
        return freed

    def settle(self, operation: op.SettleRun) -> RunFinished | Freed | NotUnknown:
        """Settle an unknown run."""
        now, record, message = self._now(), operation.record, operation.message
        place = self._look(record, message)
        run = place.run
        if run is None or not run.is_unknown(now) or operation.of_message not in {"", run.message}:
            return NotUnknown()
        self._drop_run(place, operation.remember_ms)
        if operation.kind is None:
            self._note_attempt(record, run, operation.remember_ms)
        else:
            if not message:
                self._move_outcome(record, run.message, operation.remember_ms)
                self._places.pop(Spot(record, run.message), None)
            place.outcome = Outcome(run.message, 0, run.seen, now, operation.kind, operation.body)
            place.keep_until = now if message else now + operation.keep_ms
            whole = self._look(record)
            seat = whole.seat
            if message and seat and seat.until > now and seat.message == message:
                whole.outcome, whole.keep_until, whole.seat = place.outcome, seat.until, None
                self._keep(record, "", operation.remember_ms)
        self._keep(record, message, operation.remember_ms)
        self._tell(record)
        return Freed("unknown", run.message) if operation.kind is None else RunFinished(replay=False)

    def read(self, operation: op.ReadRecord) -> RecordState | None:
        """Read the full state."""
        now, place = self._now(), self._found(operation.record, operation.message)
        if place is None:
            return None
        seat, run = place.seat, place.run
        return RecordState(
            place.task,
            Seat(seat.message, seat.until - now, now - seat.sent_at, seat.attempt) if seat else None,
            _living(run, now) if run else None,
            self._kept(place.outcome) if place.outcome else None,
            max(0, place.keep_until - now) if place.outcome else 0,
        )

    def list_claims(self, operation: op.ListClaims) -> tuple[Claim, ...]:
        """List the held keys of a partition."""
        now = self._now()
        here = [
            (end, spot.record.key, spot.message)
            for spot, end in self._claims.items()
            if spot.record.namespace == operation.namespace
            and once_partition(spot.record.key) == operation.partition
            and (end <= now or not operation.only_lapsed)
        ]
        here.sort(key=lambda entry: (entry[0], f"{once_keys('', entry[1]).member} {entry[2]}".rstrip()))
        return tuple(
            Claim(key, message or None, None if end == inf else int(end) - now)
            for end, key, message in here[: operation.limit]
        )

    def reap(self, operation: op.ReapKey) -> Reaped:
        """Free expired claims."""
        now, record, message = self._now(), operation.record, operation.message
        place = self._found(record, message)
        if place is None:
            self._claims.pop(Spot(record, message), None)
            return Reaped("freed")
        reaped, lapses_at = Reaped("held"), place.lapses_at
        if place.seat and place.seat.until <= now:
            place.seat = None
            reaped = Reaped("freed")
        run = place.run
        if run and run.is_unknown(now) and not run.is_doubted:
            place.run = replace(run, is_doubted=True)
            reaped = Reaped("unknown")
        elif run and not run.is_live(now) and not run.is_unknown(now):
            self._drop_run(place, operation.remember_ms)
            self._note_attempt(record, run, operation.remember_ms)
            if not message:
                place.reaped = (run.message, run.seen)
            reaped = Reaped("freed")
        if reaped.result == "held":
            self._note_claim(record, message)
            return reaped
        self._keep(record, message, operation.remember_ms)
        if lapses_at < inf:
            place.lapses_at = max(place.lapses_at, lapses_at)
        self._tell(record)
        return reaped


def _living(run: Run, now: int) -> LivingRun:
    ages = (now - run.begun_at, run.until - now)
    return LivingRun(run.message, run.holder_id, run.token, run.attempt, *ages, is_unknown=run.is_unknown(now))
