"""The model of submitted orders, their upkeep: putting off, sweeping, the dead-letter set, and messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.models.submitted import (
    SUBMITTED_UNTIL_MS,
    DeadOrder,
    KeptMessage,
    OutboxState,
    Replayed,
    Submitted,
    SubmittedState,
    SweepSuperseded,
    Swept,
    encodable,
    one_line,
)
from segmented.protocol.pool.model import PoolModel
from segmented.protocol.pool.model_records import Entry, ModelPool, settled_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.models import Settled

MESSAGES_MAX: Final = 1_000


class OutboxUpkeep(PoolModel):
    """Pools by sku, with the outboxes and the messages that no worker could read."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without pools."""
        super().__init__(clock, publish)
        self._noted: set[str] = set()
        self._messages: dict[str, dict[str, KeptMessage]] = {}

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            **super().bodies(),
            op.PutOff: self.put_off,
            op.SweepOutbox: self.sweep,
            op.ReadSubmitted: self.read_submitted,
            op.ReadOutbox: self.read_outbox,
            op.ListDead: self.list_dead,
            op.ReplayDead: self.replay_dead,
            op.NoteOutbox: lambda operation: self._noted.add(operation.sku),
            op.ListOutboxes: lambda _: tuple(sorted(self._noted)),
            op.KeepMessage: self.keep_message,
            op.ListMessages: self.list_messages,
            op.DropMessage: self.drop_message,
        }

    def drop_outbox(self, sku: str) -> None:
        """Remove a pool from those that the sweep looks at."""
        self._noted.discard(sku)

    def put_off(self, operation: op.PutOff) -> int:
        """Give orders back unfinished."""
        pool, buried = self.found(operation.sku), 0
        for order_id in operation.order_ids:
            record, entry = pool.binding(order_id), pool.entries.get(order_id, Entry())
            is_undecided = record.state == "reserved" if record else entry.order is not None
            if (
                order_id not in pool.outbox
                or not is_undecided
                or entry.worker
                not in {
                    "",
                    operation.holder_id,
                }
            ):
                continue
            if not operation.counts and entry.worker:
                entry.begun = max(0, entry.begun - 1)
            entry.reason, entry.until_ms, entry.worker = one_line(operation.reason), 0, ""
            if operation.counts and entry.begun >= operation.begun_max:
                self.bury(pool, order_id, entry, operation.hold_ms)
                buried += 1
            else:
                pool.entries[order_id] = entry
                pool.outbox[order_id] = self._now_ms() + operation.delay_ms
            if record and record.holder_id == operation.holder_id:
                self._free(pool, record)
        return buried

    # --- the outbox ---

    def sweep(self, operation: op.SweepOutbox) -> Swept | SweepSuperseded:
        """List the orders to publish again."""
        pool, now_ms = self.found(operation.sku), self._now_ms()
        if operation.fencing_token is not None:
            if operation.fencing_token < pool.swept_under:
                return SweepSuperseded(pool.swept_under)
            pool.swept_under = operation.fencing_token
        waiting = sorted((due_ms, order_id) for order_id, due_ms in pool.outbox.items() if due_ms <= now_ms)
        due: list[tuple[str, int]] = []
        buried: list[str] = []
        for _, order_id in waiting[: operation.limit]:
            record, entry = pool.binding(order_id), pool.entries.get(order_id, Entry())
            is_reserved = record is not None and record.state == "reserved"
            if not is_reserved and (record is not None or entry.order is None):
                pool.leave_outbox(order_id, is_dead_kept=True)
            elif entry.begun >= operation.begun_max:
                self.bury(pool, order_id, entry, operation.hold_ms)
                buried.append(order_id)
            else:
                wait_ms = min(operation.most_ms, operation.base_ms * 2 ** min(entry.published, 30))
                entry.published += 1
                pool.entries[order_id] = entry
                pool.outbox[order_id] = now_ms + wait_ms
                due.append((order_id, entry.begun))
        return Swept(tuple(due), tuple(buried), is_more_due=len(waiting) > operation.limit)

    def bury(self, pool: ModelPool, order_id: str, entry: Entry, hold_ms: int) -> None:
        """Stop publishing an order until it is replayed; its units are held for the given time."""
        if order_id in pool.holds:
            pool.holds[order_id] = self._now_ms() + hold_ms
        entry.until_ms, entry.worker = 0, ""
        pool.dead[order_id] = (entry.begun, self._now_ms(), entry.reason, entry.order)
        pool.entries[order_id] = entry
        pool.outbox.pop(order_id, None)

    def read_submitted(self, operation: op.ReadSubmitted) -> tuple[Submitted, ...]:
        """Read the full state of orders; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        if pool is None:
            return tuple(
                Submitted(one, "unknown", None, 0, 0, "", is_in_outbox=False, read_at_ms=self._now_ms())
                for one in operation.order_ids
            )
        now_ms = self._now_ms()
        return tuple(_submitted(pool, one, now_ms) for one in operation.order_ids)

    def read_outbox(self, operation: op.ReadOutbox) -> OutboxState:
        """Count the waiting orders."""
        pool, now_ms = self.found(operation.sku), self._now_ms()
        due = sum(due_ms <= now_ms for due_ms in pool.outbox.values())
        oldest = max(0, now_ms - min(pool.outbox.values(), default=now_ms))
        return OutboxState(len(pool.outbox), due, len(pool.dead), oldest)

    def list_dead(self, operation: op.ListDead) -> tuple[int, tuple[DeadOrder, ...]]:
        """Read all at once."""
        pool = self._pools.get(operation.sku)
        dead = pool.dead if pool else {}
        return 0, tuple(DeadOrder(order_id, begun, at_ms, why) for order_id, (begun, at_ms, why, _) in dead.items())

    def replay_dead(self, operation: op.ReplayDead) -> tuple[Replayed | Settled | None, ...]:
        """Publish dead orders again."""
        pool = self.found(operation.sku)
        return tuple(self._replay(pool, order_id) for order_id in operation.order_ids)

    def _replay(self, pool: ModelPool, order_id: str) -> Replayed | Settled | None:
        if order_id not in pool.dead:
            return None
        _, _, _, order = pool.dead.pop(order_id)
        record = pool.binding(order_id)
        if record is not None and record.state != "reserved":
            return settled_answer(record, replay=True)
        if record is None and order is None:
            return None
        pool.entries[order_id] = Entry(order=order if record is None else None)
        pool.outbox[order_id] = self._now_ms()
        if order_id in pool.holds:
            pool.holds[order_id] = SUBMITTED_UNTIL_MS
        return Replayed(order_id)

    # --- messages ---

    def keep_message(self, operation: op.KeepMessage) -> bool:
        """Keep a message, once."""
        kept = self._messages.setdefault(operation.queue, {})
        if operation.digest in kept:
            return True
        if len(kept) >= MESSAGES_MAX:
            return False
        reason = one_line(operation.reason)
        text = encodable(operation.text)
        kept[operation.digest] = KeptMessage(operation.digest, self._now_ms(), reason, text)
        return True

    def list_messages(self, operation: op.ListMessages) -> tuple[KeptMessage, ...]:
        """Read them, oldest first."""
        kept = self._messages.get(operation.queue, {}).values()
        aged = (replace(one, age_ms=self._now_ms() - one.at_ms) for one in kept)
        return tuple(sorted(aged, key=lambda one: (one.at_ms, one.digest)))

    def drop_message(self, operation: op.DropMessage) -> bool:
        """Forget one."""
        return self._messages.get(operation.queue, {}).pop(operation.digest, None) is not None


def _submitted(pool: ModelPool, order_id: str, now_ms: int) -> Submitted:
    record, entry = pool.record_of(order_id), pool.entries.get(order_id) or Entry()
    record = None if pool.queued(order_id) else record  # it was undone, and is queued again
    begun, reason = entry.begun, entry.reason
    state: SubmittedState = "queued" if entry.order else "unknown"
    if record is not None:
        state = record.state
    if order_id in pool.dead and state in {"queued", "reserved", "unknown"}:
        state, (begun, _, reason, _) = "dead", pool.dead[order_id]
    return Submitted(
        order_id,
        state,
        record,
        begun,
        entry.published,
        reason,
        is_in_outbox=order_id in pool.outbox,
        order=pool.queued(order_id),
        worker=entry.worker,
        until_ms=entry.until_ms,
        due_ms=pool.outbox.get(order_id),
        dead_at_ms=pool.dead[order_id][1] if order_id in pool.dead else None,
        read_at_ms=now_ms,
    )
