"""The model of reentrant locks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from segmented.keys import lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.models.locks import LockHolder, LockState
from segmented.protocol.kinds import Kind
from segmented.protocol.lock.line_model import LineModel
from segmented.protocol.reentrant.operations import AcquireReentrant, ReleaseReentrant, RenewReentrant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Hold:
    owner: str
    ends_at: float
    entries: set[str] = field(default_factory=set)


class ReentrantModel:
    """Holds by name, and the last fencing token of each."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without locks that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._holds: dict[str, _Hold] = {}
        self._tokens: dict[str, int] = {}
        self._waiting: dict[str, LineModel] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            AcquireReentrant: self.acquire,
            RenewReentrant: self.renew,
            ReleaseReentrant: self.release,
        }

    def holds(self, name: str) -> bool:
        """Return whether the lock is held."""
        return self._living(name) is not None

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._holds)

    def state(self, name: str, holders_max: int) -> LockState | None:  # noqa: ARG002  # there is one at most
        """Return the owner of the name."""
        hold = self._living(name)
        if hold is None:
            return None
        remaining_ms = round((hold.ends_at - self._clock.now()) * 1000)
        owner = LockHolder("", "exclusive", remaining_ms, owner=hold.owner, count=len(hold.entries))
        return LockState(name, "reentrant", (owner,), 1, remaining_ms, self._tokens[name])

    def revoke(self, name: str) -> None:
        """End all entries, and wake waiters."""
        del self._holds[name]
        self._publish(lock_keys(name).freed)

    def _living(self, name: str) -> _Hold | None:
        hold = self._holds.get(name)
        return hold if hold is not None and hold.ends_at > self._clock.now() else None

    def _entered(self, operation: RenewReentrant | ReleaseReentrant) -> _Hold | None:
        hold = self._living(operation.name)
        is_in = hold is not None and hold.owner == operation.owner and operation.holder_id in hold.entries
        return hold if is_in else None

    def line(self, name: str) -> LineModel:
        """Return the line of the processes that wait for the name."""
        return self._waiting.setdefault(name, LineModel(lock_keys(name).freed, self._publish))

    def acquire(self, operation: AcquireReentrant) -> Acquired | Held:
        """Enter, for the first time or again; an existing entry does not change the count."""
        now = self._clock.now()
        hold = self._living(operation.name)
        line = self.line(operation.name)
        if hold is not None and hold.owner != operation.owner:
            return Held(round((hold.ends_at - now) * 1000), ahead=line.keep_place(operation.party, now))
        if hold is None and operation.only_again:
            return Held(0)
        if hold is None and (left_ms := line.left_to_first(operation.party, now)) is not None:
            free_in_ms, ahead = line.wait_behind(operation.party, now, left_ms)
            return Held(free_in_ms, ahead=ahead)
        if hold is None:
            line.tell_following(operation.ttl_ms)
            self._tokens[operation.name] = max(self._tokens.get(operation.name, 0) + 1, int(now * 1_000_000))
            hold = self._holds[operation.name] = _Hold(operation.owner, now)
        is_replay = operation.holder_id in hold.entries
        hold.entries.add(operation.holder_id)
        hold.ends_at = max(hold.ends_at, now + operation.ttl_ms / 1000)
        return Acquired(self._tokens[operation.name], operation.ttl_ms, replay=is_replay)

    def renew(self, operation: RenewReentrant) -> Renewed | Lost:
        """Extend the lease, never shorten it while another entry counts, and never re-create it."""
        hold = self._entered(operation)
        if hold is None:
            return Lost()
        ends_at = self._clock.now() + operation.ttl_ms / 1000
        hold.ends_at = ends_at if len(hold.entries) == 1 else max(hold.ends_at, ends_at)
        return Renewed(operation.ttl_ms)

    def release(self, operation: ReleaseReentrant) -> Released | Lost:
        """Leave; the last entry wakes a waiter."""
        hold = self._entered(operation)
        if hold is None:
            return Lost()
        hold.entries.discard(operation.holder_id)
        if not hold.entries:
            del self._holds[operation.name]
            self._publish(lock_keys(operation.name).freed)
        return Released()


KIND: Final = Kind(
    "reentrant",
    "ReentrantLock",
    "one owner at a time, which may acquire it again",
    ReentrantModel,
    takes=(AcquireReentrant,),
)
