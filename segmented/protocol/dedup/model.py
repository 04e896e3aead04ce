"""The model of deduplication records: a readable version of the scripts that use `shared/once.lua`.

A place is the record of a key or of one of its messages; a run is kept in one of the two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from segmented.errors import InvalidInput
from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
    RunOvertaken,
)
from segmented.protocol.dedup import operations as op
from segmented.protocol.dedup.model_places import Spot
from segmented.protocol.dedup.model_records import Outcome, Place, Round, Run, Sitting, differs
from segmented.protocol.dedup.model_upkeep import DedupUpkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.dedup import RecordName
    from segmented.protocol import Operation


class DedupModel(DedupUpkeep):
    """Records by namespace and key."""

    def bodies(self) -> dict[type[Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.ClaimKey: self.claim,
            op.BeginRun: self.begin,
            op.RenewRun: self.renew,
            op.FinishRun: self.finish,
            op.FinishRunWithEffect: self.finish_with_effect,
            op.AbandonRun: self.abandon,
            op.DoubtRun: self.doubt,
            op.CancelMessage: self.cancel,
            op.FreeKey: self.free,
            op.SettleRun: self.settle,
            op.ReadRecord: self.read,
            op.ListClaims: self.list_claims,
            op.ListNamespaces: self.list_namespaces,
            op.ReapKey: self.reap,
        }

    # --- publication ---

    def claim(self, operation: op.ClaimKey) -> KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers:
        """Take the seat."""
        now, record, seen = self._now(), operation.record, operation.payload_print
        place = self._look(record)
        outcome, run, seat = place.outcome, place.run, place.seat
        living = seat if seat and seat.until > now else None
        if living and living.message == operation.message:
            return KeyClaimed(replay=True, delay_ms=max(0, living.sent_at - now))
        if outcome and place.keep_until > now:
            return PayloadDiffers(outcome.message) if differs(outcome.seen, seen) else self._kept(outcome)
        if operation.is_blocked_by_run and run and (run.is_live(now) or run.is_unknown(now)):
            return PayloadDiffers(run.message) if differs(run.seen, seen) else self._held_by_run(run)
        was_replaced = self._look(record, operation.message).replaced_by != ""
        if living and (was_replaced or not operation.replaces):
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
        self._take_over(operation, seat, run)
        self._forget(record, operation.message, "replaced_by", "is_orphan")
        due = now + delay_ms
        place = self._place(record)
        place.seat = Sitting(operation.message, seen, due + operation.wait_ms, since, 0, due)
        place.task = operation.task
        self._keep(record, "", operation.remember_ms)
        return KeyClaimed(replay=False, delay_ms=delay_ms, replaced=living.message if living else None)

    def _take_over(self, operation: op.ClaimKey, seat: Sitting | None, run: Run | None) -> None:
        """Make the replaced message, or one whose worker died, a repeat of the message that takes the seat."""
        now, record, seen = self._now(), operation.record, operation.payload_print
        if seat and seat.until > now and not self._is_at_work(record, seat.message):
            left_ms = max(0, seat.until - now) + operation.remember_ms
            self._noted(record, seat.message, left_ms).replaced_by = operation.message
        if operation.is_blocked_by_run:
            self._take_place(record, run, seen, operation.message, operation.remember_ms)

    def _is_at_work(self, record: RecordName, message: str) -> bool:
        now = self._now()
        runs = (self._look(record).run, self._look(record, message).run)
        return any(run and run.message == message and (run.is_live(now) or run.is_unknown(now)) for run in runs)

    # --- execution ---

    def begin(
        self, operation: op.BeginRun
    ) -> RunBegun | KeyHeld | OutcomeKept | PayloadDiffers | MessageCancelled | AttemptOutdated:
        """Begin, unless the message has ended, is outdated, or the key is held; in the order of the script's cases."""
        replaced = self._look(operation.record, operation.message).replaced_by != ""
        if replaced:
            operation = replace(operation, follows=self._newest(operation))
        is_over = replaced and not self._look(operation.record, operation.message).is_orphan
        ended = self._ended(operation, ends_with_successor=is_over)
        if ended is not None:
            self._give_up_seat(operation, is_cancelled=isinstance(ended, MessageCancelled))
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
            return self._held_for_now(operation, self._held_by_run(run), run.until)
        first = self._look(record, operation.follows) if operation.follows else Place()
        if operation.run_on == "message" and first.run and (first.run.is_live(now) or first.run.is_unknown(now)):
            return self._held_for_now(operation, self._held_by_run(first.run), first.run.until)
        if first.awaited is not None and first.awaited_until > now and not first.outcome:
            ends = first.awaited_until
            held = KeyHeld(operation.follows, "waiting", ends - now, first.awaited)
            return self._held_for_now(operation, held, ends)
        return self._seated(operation, has_begun=(own.awaited is not None or is_mine) and not replaced) or self._begun(
            operation
        )

    def _newest(self, operation: op.BeginRun) -> str:
        """Return the newest of the messages that replaced this one."""
        newest = operation.message
        while found := self._look(operation.record, newest).replaced_by:
            newest = found
        return newest

    def _ended(self, operation: op.BeginRun, *, ends_with_successor: bool) -> OutcomeKept | MessageCancelled | None:
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
            if first and ends_with_successor:
                return MessageCancelled()
        return None

    def _seated(self, operation: op.BeginRun, *, has_begun: bool) -> KeyHeld | PayloadDiffers | OutcomeKept | None:
        now, place = self._now(), self._look(operation.record)
        seat, outcome = place.seat, place.outcome
        is_own = seat is not None and seat.message == operation.message
        if operation.seat_end != "none" and seat and seat.until > now and not is_own and not has_begun:
            if differs(seat.seen, operation.payload_print):
                return PayloadDiffers(seat.message)
            held = KeyHeld(seat.message, "waiting", max(0, seat.until - now), seat.attempt)
            return self._held_for_now(operation, held, seat.until)
        if outcome and place.keep_until > now and not is_own and not has_begun:
            if differs(outcome.seen, operation.payload_print):
                return PayloadDiffers(outcome.message)
            return self._kept(outcome)
        return None

    def _give_up_seat(self, operation: op.BeginRun, *, is_cancelled: bool) -> None:
        """Drop the seat of a message that will not run again; a window that it took continues."""
        place = self._look(operation.record)
        holds = place.seat is not None and place.seat.message == operation.message
        if holds and (is_cancelled or operation.seat_end != "time"):
            place.seat = None
            self._keep(operation.record, "", operation.remember_ms)
            self._tell(operation.record)

    def _held_for_now(self, operation: op.BeginRun, held: KeyHeld, ends: int) -> KeyHeld:
        """Decide whether this copy is sent again, and with which number; see the script."""
        if held.state == "unknown":
            return held
        now, record, message = self._now(), operation.record, operation.message
        last = self._look(record, message).round
        if last and (last.attempt, last.number) > (operation.attempt, operation.round):
            return held
        is_same = last is not None and (last.attempt, last.number) == (operation.attempt, operation.round)
        if last and is_same and last.holder_id != operation.holder_id and now - last.at < operation.ttl_ms:
            return replace(held, goes_round=True, next_round=operation.round)
        own = self._noted(record, message, max(0, ends - now) + operation.ttl_ms)
        own.round = Round(operation.attempt, operation.round, operation.holder_id, now)
        return replace(held, goes_round=True, next_round=operation.round + 1)

    def _begun(self, operation: op.BeginRun) -> RunBegun:
        now, record = self._now(), operation.record
        place = self._place(record)
        where = "" if operation.run_on == "key" else operation.message
        working = self._place(record, where)
        token = max(place.token + 1, int(self._clock.now() * 1_000_000))
        until = now + operation.ttl_ms
        before = working.run
        who = (operation.message, operation.payload_print, operation.holder_id, token, operation.attempt)
        working.run = Run(*who, now, until, operation.on_lapse)
        working.task = operation.task
        self._forget(record, operation.message, "awaited_until", "replaced_by", "is_orphan")
        if operation.seat_end == "end":
            self._take_place(record, before, operation.payload_print, operation.message, operation.remember_ms)
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
        """Extend the lease."""
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
        if run is None or not _is_of(run, operation) or run.token != operation.fencing_token:
            for place in (self._look(record), self._look(record, message)):
                found = place.outcome
                if found and found.message == message and found.token == operation.fencing_token:
                    return RunFinished(replay=True, body=found.body if found.kind == "effect" else "")
            return RunOvertaken()
        outcome = Outcome(message, operation.fencing_token, run.seen, now, operation.kind, operation.body)
        self._drop_run(working, operation.remember_ms)
        if operation.run_on == "key":
            self._move_outcome(record, message, operation.remember_ms)
            self._places.pop(Spot(record, message), None)
            working.outcome, working.keep_until = outcome, now + operation.keep_ms
        else:
            working.outcome, working.keep_until = outcome, now
            self._keep(record, where, operation.remember_ms)
            place = self._look(record)
            seat = place.seat
            if operation.seat_end == "time" and seat and seat.until > now and seat.message == message:
                place.outcome, place.keep_until, place.seat = outcome, seat.until, None
        self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return RunFinished(replay=False)

    def finish_with_effect(self, _: op.FinishRunWithEffect) -> NoReturn:
        """Raise: this store has no scripts."""
        message = "a store in memory runs no Lua: effects in one step need a Redis store"
        raise InvalidInput(message)

    def abandon(self, operation: op.AbandonRun) -> Released | Lost:
        """End without an outcome."""
        now, record, message = self._now(), operation.record, operation.message
        working, where = self._run_place(record, message, operation.run_on)
        run = working.run
        if run is None or not _is_of(run, operation):
            awaited = self._look(record, message).awaited
            following = operation.next_attempt
            is_done = following is not None and awaited is not None and awaited >= following
            return Released() if is_done else Lost()
        self._drop_run(working, operation.remember_ms)
        if operation.next_attempt is None:
            self._note_attempt(record, run, operation.remember_ms)
        else:
            due = now + operation.delay_ms
            ends = due + operation.wait_ms
            own = self._noted(record, message, ends - now + operation.remember_ms)
            own.awaited, own.awaited_until, own.task = operation.next_attempt, ends, self._look(record).task
            seat = self._look(record).seat
            if operation.seat_end == "end" and not (seat and seat.until > now):
                seat = Sitting(message, run.seen, ends, now, operation.next_attempt, due)
                self._place(record).seat = seat
        if where:
            self._note_claim(record, where)
        self._keep(record, "", operation.remember_ms)
        self._tell(record)
        return Released()

    def doubt(self, operation: op.DoubtRun) -> Released | Lost:
        """End a run in the unknown state."""
        place, where = self._run_place(operation.record, operation.message, operation.run_on)
        run = place.run
        if run is None or not _is_of(run, operation):
            return Lost()
        place.run = replace(run, on_lapse="unknown", is_doubted=True)
        self._keep(operation.record, where, operation.remember_ms)
        self._tell(operation.record)
        return Released()


def _is_of(run: Run | None, operation: op.RenewRun | op.FinishRun | op.AbandonRun | op.DoubtRun) -> bool:
    return run is not None and run.message == operation.message and run.holder_id == operation.holder_id
