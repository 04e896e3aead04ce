"""The model of fair locks. Like a server in a cluster, it detects a dead process by time alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from segmented.keys import fair_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.fair.operations import AcquireFair, ReleaseFair, RenewFair
from segmented.protocol.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Waiter:
    arrival: int
    process: str
    present_until: float


@dataclass(slots=True)
class _Fair:
    """One name. `waiters` wait, or were handed the lock and have not claimed it; `queue` has those still in line."""

    holder_id: str = ""
    process: str | None = None
    ends_at: float = -inf
    token: int = 0
    arrivals: int = 0
    handed: str = ""
    minder: str | None = None
    waiters: dict[str, _Waiter] = field(default_factory=dict)
    queue: set[str] = field(default_factory=set)

    def holder(self, now: float) -> str | None:
        """Return the holder, or the waiter that was handed the lock."""
        return self.holder_id if self.ends_at > now else None

    def in_order(self) -> list[str]:
        """Return the waiters in line, in order."""
        return sorted(self.queue, key=lambda holder_id: self.waiters[holder_id].arrival)

    def those_of(self, process: str) -> set[str]:
        """Return the waiters of a process."""
        return {holder_id for holder_id, waiter in self.waiters.items() if waiter.process == process}

    def forget(self, holder_id: str) -> None:
        """Remove a waiter."""
        self.waiters.pop(holder_id, None)
        self.queue.discard(holder_id)

    def forget_the_absent(self, now: float) -> None:
        """Drop all waiters whose presence has expired."""
        for holder_id in [one for one, waiter in self.waiters.items() if waiter.present_until <= now]:
            self.forget(holder_id)

    def give_to(self, holder_id: str, process: str, now: float, ms: int) -> None:
        """Set a new holder, with a token greater than the last one."""
        self.token = max(self.token + 1, int(now * 1_000_000))
        self.holder_id, self.process, self.ends_at = holder_id, process, now + ms / 1000
        self.queue.discard(holder_id)

    def pass_over_the_silent(self, process: str) -> None:
        """Remove all waiters of a process that did not claim the lock handed to it from the line; not our own."""
        silent = self.waiters.get(self.handed)
        if silent is not None and silent.process != process and self.handed not in self.queue:
            self.queue -= self.those_of(silent.process)

    def keep_place(self, operation: AcquireFair, now: float) -> None:
        """Put a new waiter behind all others; one that was passed over returns, with all of its process."""
        me, present_until = operation.holder_id, now + operation.times.presence_ms / 1000
        waiter = self.waiters.get(me)
        if waiter is None:
            self.arrivals += 1
            self.waiters[me] = _Waiter(self.arrivals, operation.process, present_until)
            self.queue.add(me)
            return
        if me not in self.queue:
            self.queue |= self.those_of(operation.process) - {self.holder(now)}
        waiter.present_until = present_until

    def pick_minder(self) -> str | None:
        """Return the waiter that watches the holder's end: the first of another process, or the first."""
        line = self.in_order()[:100]
        others = [holder_id for holder_id in line if self.waiters[holder_id].process != self.process]
        return next(iter(others or line), None)


WOKEN_MAX: Final = 16
"""Number of waiters woken by a revoke: the first of them gets the lock, whichever asks first."""


class FairModel:
    """Queues and holders by name."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without locks that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._names: dict[str, _Fair] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            AcquireFair: self.acquire,
            RenewFair: self.renew,
            ReleaseFair: self.release,
        }

    def holds(self, name: str) -> bool:
        """Return whether it is held, or handed to a waiter."""
        found = self._names.get(name)
        return found is not None and found.holder(self._clock.now()) is not None

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._names)

    def state(self, name: str, holders_max: int) -> LockState | None:  # noqa: ARG002  # there is one at most
        """Return its holder and the number of waiters."""
        state, now = self._names.get(name, _Fair()), self._clock.now()
        holder = state.holder(now)
        if holder is None:
            return None
        waiting = sum(waiter.present_until > now for waiter in state.waiters.values()) - (holder in state.waiters)
        remaining_ms = round((state.ends_at - now) * 1000)
        shown = LockHolder(holder[:HOLDER_ID_SHOWN], "exclusive", remaining_ms)
        return LockState(name, "fair", (shown,), 1, remaining_ms, state.token, waiters=max(0, waiting))

    def revoke(self, name: str) -> None:
        """End the lease, and notify the first in line."""
        state, keys = self._names[name], fair_keys(name)
        state.ends_at = -inf
        self._publish(keys.freed)
        for holder_id in state.in_order()[:WOKEN_MAX]:
            self._publish(keys.turn_of(holder_id))

    def acquire(self, operation: AcquireFair) -> Acquired | Held:
        """Take the lock, or a place in its queue."""
        now, me, name = self._clock.now(), operation.holder_id, operation.name
        state = self._names.setdefault(name, _Fair())
        holder = state.holder(now)
        state.forget_the_absent(now)
        # 1. ours
        if holder == me:
            is_new = me in state.waiters
            state.forget(me)
            state.ends_at = now + operation.ttl_ms / 1000
            return Acquired(state.token, operation.ttl_ms, replay=not is_new)
        # 2. who is there, and where
        if holder is None:
            state.pass_over_the_silent(operation.process)
        if operation.waits and (holder or me in state.waiters or state.queue):
            state.keep_place(operation, now)
        # 3. free
        is_handed_now = False
        if holder is None:
            first = next(iter(state.in_order()), me)
            if first == me:
                state.forget(me)
                state.give_to(me, operation.process, now, operation.ttl_ms)
                self._notify_minder(name, state, None, always=True)
                return Acquired(state.token, operation.ttl_ms, replay=False)
            self._hand_to(name, state, first, operation.times.claim_ms)
            holder, is_handed_now = first, True
        # 4. wait
        minds = self._notify_minder(name, state, me, always=is_handed_now) == me or holder in state.waiters
        remaining_ms = round((state.ends_at - now) * 1000)
        look_ms = operation.times.look_ms
        return Held(max(1, min(remaining_ms, look_ms)) if minds else look_ms)

    def renew(self, operation: RenewFair) -> Renewed | Lost:
        """Extend the lease; never re-create it."""
        state, now = self._names.get(operation.name, _Fair()), self._clock.now()
        if state.holder(now) != operation.holder_id:
            return Lost()
        state.ends_at = now + operation.ttl_ms / 1000
        return Renewed(operation.ttl_ms)

    def release(self, operation: ReleaseFair) -> Released | Lost:
        """Hand the lock on, or leave the queue."""
        now, me, name = self._clock.now(), operation.holder_id, operation.name
        state = self._names.get(name, _Fair())
        holder = state.holder(now)
        state.forget_the_absent(now)
        if holder != me and me not in state.waiters:
            return Lost()
        state.forget(me)
        first = next(iter(state.in_order()), None) if holder in (None, me) else None
        if first is not None:
            self._hand_to(name, state, first, operation.times.claim_ms)
        elif holder == me:
            state.ends_at = -inf
            self._publish(fair_keys(name).freed)
        self._notify_minder(name, state, None, always=first is not None)
        return Released()

    def _hand_to(self, name: str, state: _Fair, first: str, claim_ms: int) -> None:
        state.give_to(first, state.waiters[first].process, self._clock.now(), claim_ms)
        state.handed = first
        self._publish(fair_keys(name).turn_of(first))

    def _notify_minder(self, name: str, state: _Fair, me: str | None, *, always: bool) -> str | None:
        minder = state.pick_minder()
        if minder is not None and (always or minder != state.minder):
            state.minder = minder
            if minder != me:
                self._publish(fair_keys(name).turn_of(minder))
        return minder


KIND: Final = Kind(
    "fair",
    "FairLock",
    "one at a time, first come, first served",
    FairModel,
    takes=(AcquireFair,),
    counts_waiters=True,
)
