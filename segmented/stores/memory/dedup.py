"""The model of deduplication records: what the scripts of `shared/once.lua` do, to be read.

A place is a record of a key, or what is known of one of its messages; a run is kept in the one or the other.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from segmented.errors import InvalidInput
from segmented.keys import once_partition
from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    Claim,
    Freed,
    KeyClaimed,
    KeyHeld,
    LivingRun,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    PayloadDiffers,
    Reaped,
    RecordState,
    RunBegun,
    RunFinished,
    RunOvertaken,
    Seat,
    StillRunning,
)
from segmented.operations import Operation, dedup as op
from segmented.stores.memory.dedup_places import DedupPlaces, Spot
from segmented.stores.memory.dedup_records import Outcome, Run, Sitting, differs

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.dedup import RecordName


class DedupModel(DedupPlaces):
    """Records by namespace and key."""

    def bodies(self) -> dict[type[Operation[Any]], Callable[[Any], object]]:
        """Return what performs each operation."""
        return {
            op.ClaimKey: self.claim,
            op.BeginRun: self.begin,
            op.RenewRun: self.renew,
            op.FinishRun: self.finish,
            op.FinishRunWithEffect: self.finish_with_effect,
            op.AbandonRun: self.abandon,
            op.CancelMessage: self.cancel,
            op.FreeKey: self.free,
            op.SettleRun: self.settle,
            op.ReadRecord: self.read,
            op.ListClaims: self.list_claims,
            op.ReapKey: self.reap,
        }

    # --- publication ---

    def claim(self, operation: op.ClaimKey) -> KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers:
        """Take the seat."""
        now, record, seen = self._now(), operation.record, operation.payload_print
        place = self._look(record)
        outcome, run, seat = place.outcome, place.run, place.seat
        if outcome and place.keep_until > now:
            return PayloadDiffers(outcome.message) if differs(outcome.seen, seen) else self._kept(outcome)
        if operation.is_blocked_by_run and run and (run.is_live(now) or run.is_unknown(now)):
            return PayloadDiffers(run.message) if differs(run.seen, seen) else self._held_by_run(run)
        living = seat if seat and seat.until > now else None
        if living and living.message == operation.message:
            return KeyClaimed(replay=True, delay_ms=max(0, living.sent_at - now))
        if living and not operation.replaces:
            if differs(living.seen, seen):
                return PayloadDiffers(living.message)
            is_late = operation.resend_ms > 0 and now - living.sent_at >= operation.resend_ms
            if is_late:
                living.sent_at = now
            ends = max(0, living.until - now)
            return KeyHeld(living.message, "waiting", ends, living.attempt, resend=is_late)
        since, delay_ms = living.since if living else now, operation.delay_ms
        if operation.delay_max_ms > 0:
            delay_ms = max(0, min(delay_ms, since + operation.delay_max_ms - now))
        due = now + delay_ms
        place = self._place(record)
        place.seat = Sitting(operation.message, seen, due + operation.wait_ms, since, 0, due)
        place.task = operation.task
        self._keep(record, "", operation.remember_ms)
        return KeyClaimed(replay=False, delay_ms=delay_ms, replaced=living.message if living else None)

    # --- execution ---

    def begin(
        self, operation: op.BeginRun
    ) -> RunBegun | KeyHeld | OutcomeKept | PayloadDiffers | MessageCancelled | AttemptOutdated:
        """Begin, unless it has ended, is outdated, or is in somebody's hand; in the order of the script's cases."""
        ended = self._ended(operation)
        if ended is not None:
            return ended
        now, record, message = self._now(), operation.record, operation.message
        place, own = self._look(record), self._look(record, message)
        run = (place if operation.run_on == "key" else own).run
        is_mine = run is not None and run.message == message
        reached = max(own.awaited or 0, run.attempt if run and is_mine else 0)
        if operation.attempt < reached:
            return AttemptOutdated(reached)
        if run and is_mine and run.holder_id == operation.holder_id and run.is_live(now):
            return RunBegun(run.token, operation.ttl_ms, replay=True)
        is_next = run is not None and is_mine and operation.attempt > run.attempt
        if run and (run.is_live(now) or run.is_unknown(now)) and not is_next:
            if not is_mine and differs(run.seen, operation.payload_print):
                return PayloadDiffers(run.message)
            return self._held_by_run(run, goes_round=run.is_live(now) and self._goes_round(operation))
        first = self._look(record, operation.follows).run if operation.follows else None
        if operation.run_on == "message" and first and (first.is_live(now) or first.is_unknown(now)):
            return self._held_by_run(first, goes_round=first.is_live(now) and self._goes_round(operation))
        return self._seated(operation, has_begun=own.awaited is not None or is_mine) or self._begun(operation)

    def _ended(self, operation: op.BeginRun) -> OutcomeKept | MessageCancelled | None:
        record, outcome = operation.record, self._look(operation.record).outcome
        if outcome and outcome.message == operation.message:
            return self._finished(outcome)
        own = self._look(record, operation.message).outcome
        if own:
            return self._finished(own)
        if operation.follows:
            if outcome and outcome.message == operation.follows and outcome.kind != "cancelled":
                return self._kept(outcome)
            first = self._look(record, operation.follows).outcome
            if first and first.kind != "cancelled":
                return self._kept(first)
        return None

    def _seated(self, operation: op.BeginRun, *, has_begun: bool) -> KeyHeld | PayloadDiffers | OutcomeKept | None:
        now, place = self._now(), self._look(operation.record)
        seat, outcome = place.seat, place.outcome
        is_own = seat is not None and seat.message == operation.message
        if operation.seat_end != "none" and seat and seat.until > now and not is_own and not has_begun:
            if differs(seat.seen, operation.payload_print):
                return PayloadDiffers(seat.message)
            goes_round = self._goes_round(operation)
            return KeyHeld(seat.message, "waiting", max(0, seat.until - now), seat.attempt, goes_round=goes_round)
        if outcome and place.keep_until > now and not is_own and not has_begun:
            if differs(outcome.seen, operation.payload_print):
                return PayloadDiffers(outcome.message)
            return self._kept(outcome)
        return None

    def _goes_round(self, operation: op.BeginRun) -> bool:
        if operation.round < self._look(operation.record, operation.message).round:
            return False
        own = self._place(operation.record, operation.message)
        own.round = operation.round + 1
        own.lapses_at = self._now() + operation.remember_ms + operation.ttl_ms
        return True

    def _begun(self, operation: op.BeginRun) -> RunBegun:
        now, record = self._now(), operation.record
        place = self._place(record)
        where = "" if operation.run_on == "key" else operation.message
        working = self._place(record, where)
        token = max(place.token + 1, int(self._clock.now() * 1_000_000))
        until = now + operation.ttl_ms
        who = (operation.message, operation.payload_print, operation.holder_id, token, operation.attempt)
        working.run = Run(*who, now, until, operation.on_lapse)
        working.round, working.awaited, working.task = 0, None, operation.task
        place.token, place.task = token, operation.task
        seat = place.seat
        if operation.seat_end == "time" and not (seat and seat.until > now):
            ends = now + operation.window_ms
            place.seat = Sitting(operation.message, operation.payload_print, ends, now, 0, now)
        elif operation.seat_end != "time" and seat and (seat.message == operation.message or seat.until <= now):
            place.seat = None
            if operation.seat_end == "start":
                self._tell(record)
        self._keep(record, "", operation.remember_ms)
        if where:
            self._keep(record, where, operation.remember_ms)
        return RunBegun(token, operation.ttl_ms, replay=False)

    def renew(self, operation: op.RenewRun) -> Renewed | Lost:
        """Push the end out."""
        place, where = self._run_place(operation.record, operation.message, operation.run_on)
        run = place.run
        if not _is_of(run, operation) or run is None or not run.is_live(self._now()):
            return Lost()
        run.until = self._now() + operation.ttl_ms
        self._keep(operation.record, where, operation.remember_ms)
        return Renewed(operation.ttl_ms)

    def finish(self, operation: op.FinishRun) -> RunFinished | RunOvertaken:
        """Keep the outcome."""
        now, record, message = self._now(), operation.record, operation.message
        working, where = self._run_place(record, message, operation.run_on)
        run = working.run
        if run is None or not _is_of(run, operation):
            for place in (self._look(record), self._look(record, message)):
                found = place.outcome
                if found and found.message == message and found.token == operation.fencing_token:
                    return RunFinished(replay=True, body=found.body if found.kind == "effect" else "")
            return RunOvertaken()
        outcome = Outcome(message, operation.fencing_token, run.seen, now, operation.kind, operation.body)
        working.run = None
        if operation.run_on == "key":
            self._make_room(record, message, operation.remember_ms)
            self._places.pop(Spot(record, message), None)
            working.outcome, working.keep_until = outcome, now + operation.keep_ms
        else:
            working.outcome, working.keep_until = outcome, now
            self._keep(record, where, operation.remember_ms)
            place = self._look(record)
            seat = place.seat
            if operation.seat_end == "time" and seat and seat.until > now and seat.message == message:
                place.outcome, place.keep_until, place.seat = outcome, seat.until, None
        self._place(record)
        self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return RunFinished(replay=False)

    def _make_room(self, record: RecordName, message: str, remember_ms: int) -> None:
        """Keep the last outcome for copies of its message, since another takes its place."""
        last = self._look(record).outcome
        if last and last.message != message and last.at + remember_ms > self._now():
            old = self._place(record, last.message)
            old.outcome, old.lapses_at = last, last.at + remember_ms

    def finish_with_effect(self, _: op.FinishRunWithEffect) -> NoReturn:
        """Refuse: this store has no scripts."""
        message = "a store in memory runs no Lua: effects in one step need a Redis store"
        raise InvalidInput(message)

    def abandon(self, operation: op.AbandonRun) -> Released | Lost:
        """End without an outcome."""
        now, record, message = self._now(), operation.record, operation.message
        working, where = self._run_place(record, message, operation.run_on)
        run = working.run
        if run is None or not _is_of(run, operation):
            awaited = self._look(record, message).awaited
            is_done = operation.next_attempt is not None and (awaited or -1) >= operation.next_attempt
            return Released() if is_done else Lost()
        working.run = None
        if operation.next_attempt is not None:
            due = now + operation.delay_ms
            own = self._place(record, message)
            own.awaited, own.task = operation.next_attempt, self._look(record).task
            own.lapses_at = due + operation.wait_ms + operation.remember_ms
            place = self._look(record)
            if operation.seat_end == "end" and not (place.seat and place.seat.until > now):
                ends = due + operation.wait_ms
                place.seat = Sitting(message, run.seen, ends, now, operation.next_attempt, due)
        if where:
            self._claims.pop(Spot(record, where), None)
            if operation.next_attempt is None:
                self._keep(record, where, operation.remember_ms)
        self._place(record)
        self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return Released()

    # --- from outside ---

    def cancel(self, operation: op.CancelMessage) -> MessageCancelled | StillRunning | OutcomeKept:
        """Keep a message from beginning."""
        now, record, message = self._now(), operation.record, operation.message
        for place in (self._look(record), self._look(record, message)):
            if place.outcome and place.outcome.message == message:
                return self._finished(place.outcome)
        working, _ = self._run_place(record, message, operation.run_on)
        run = working.run
        if run and run.message == message:
            if run.is_live(now) and not operation.is_dead:
                return StillRunning(run.until - now)
            working.run = None
        found = self._found(record)
        if found and found.seat and found.seat.message == message:
            found.seat = None
        own = self._place(record, message)
        own.outcome, own.lapses_at = Outcome(message, 0, "", now, "cancelled", ""), now + operation.remember_ms
        self._claims.pop(Spot(record, message), None)
        if found:
            self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return MessageCancelled()

    def free(self, operation: op.FreeKey) -> Freed:
        """End whatever holds the key."""
        now, place = self._now(), self._look(operation.record)
        freed = Freed(None, None)
        if place.run:
            freed = Freed("unknown" if place.run.is_unknown(now) else "running", place.run.message)
        elif place.seat and place.seat.until > now:
            freed = Freed("waiting", place.seat.message)
        elif place.outcome:
            freed = Freed("done", place.outcome.message)
        place.run, place.seat, place.outcome, place.keep_until = None, None, None, 0
        self._claims.pop(Spot(operation.record), None)
        self._tell(operation.record)
        return freed

    def settle(self, operation: op.SettleRun) -> RunFinished | Freed | NotUnknown:
        """Say what became of an unknown run."""
        now, place = self._now(), self._look(operation.record)
        run = place.run
        if run is None or not run.is_unknown(now):
            return NotUnknown()
        place.run = None
        if operation.kind is not None:
            place.outcome = Outcome(run.message, run.token, run.seen, now, operation.kind, operation.body)
            place.keep_until = now + operation.keep_ms
        self._keep(operation.record, "", operation.remember_ms)
        self._tell(operation.record)
        return Freed("unknown", run.message) if operation.kind is None else RunFinished(replay=False)

    def read(self, operation: op.ReadRecord) -> RecordState | None:
        """Read all that is known."""
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
        """List what is held in a partition."""
        now = self._now()
        here = [
            (end, spot.record.key, spot.message)
            for spot, end in self._claims.items()
            if spot.record.namespace == operation.namespace
            and once_partition(spot.record.key) == operation.partition
            and (end <= now or not operation.only_lapsed)
        ]
        here.sort(key=lambda entry: (entry[0], f"{entry[1]} {entry[2]}".strip()))
        return tuple(
            Claim(key, message or None, None if end == inf else int(end) - now)
            for end, key, message in here[: operation.limit]
        )

    def reap(self, operation: op.ReapKey) -> Reaped:
        """Free what has lapsed."""
        now, record, message = self._now(), operation.record, operation.message
        place = self._found(record, message)
        if place is None:
            self._claims.pop(Spot(record, message), None)
            return Reaped("freed")
        reaped = Reaped("held")
        if place.seat and place.seat.until <= now:
            place.seat = None
            reaped = Reaped("freed")
        run = place.run
        if run and run.is_unknown(now) and not run.is_doubted:
            place.run = replace(run, is_doubted=True)
            reaped = Reaped("unknown")
        elif run and not run.is_live(now) and not run.is_unknown(now):
            if run.attempt > 0:
                own = self._place(record, run.message)
                own.awaited, own.lapses_at = run.attempt, now + operation.remember_ms
            place.run = None
            reaped = Reaped("freed")
        self._keep(record, message, operation.remember_ms)
        if reaped.result != "held":
            self._tell(record)
        return reaped


def _is_of(run: Run | None, operation: op.RenewRun | op.FinishRun | op.AbandonRun) -> bool:
    return run is not None and run.message == operation.message and run.holder_id == operation.holder_id


def _living(run: Run, now: int) -> LivingRun:
    ages = (now - run.begun_at, run.until - now)
    return LivingRun(run.message, run.holder_id, run.token, run.attempt, *ages, is_unknown=run.is_unknown(now))
