"""Operations on named locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Final

from segmented.errors import WrongKind
from segmented.keys import KEPT_MAX, LockKeys, lock_keys, named_lock_keys
from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation, Release, is_one
from segmented.protocol.wire import (
    Call,
    Command,
    Dialect,
    Exchange,
    Finish,
    Reply,
    awaited,
    load_script,
    optional_number,
    replicas_wait,
    script_call,
    text,
)
from segmented.values import light_dataclass

TURN: Final = "turn:"
"""Begins a message that the lock is left to the process of that name; it should try now."""
FIRST: Final = "first:"
"""Begins a message that the process of that name is the first of the line now, because the one before took the lock for
so many milliseconds; it should try at the next release."""
TAKEN: Final = "taken:"
"""A message that what was free is taken: a process behind others need not try."""
ALL: Final = "*"
"""The process of a turn that every process has: the line was forgotten because its first did not come."""
NEWCOMER: Final = "*"
"""Begins the party of a caller that has not waited, and would; alone, the party of one that keeps no place yet."""
NEWCOMERS_MAX: Final = 2
"""Turns of callers that have not waited, in a row, while another process waits."""
WAITERS_MAX: Final = 15
"""As above, if the last of them is a waiter of another process."""
PASSED_MS: Final = 50
"""Milliseconds after which a free lock is left to the first of the line, however few turns others had."""
LEFT_MS: Final = 40
"""Milliseconds for which it is left to it; then all processes lose their places, and those that wait ask again."""
LINE_TTL_MS: Final = 30_000
"""Milliseconds after which a line is forgotten to which no process comes; a waiting one comes within a second."""
FENCE_IDLE_MS: Final = 24 * 3600 * 1000
"""How long an idle lock's last token is kept. Its expiry does no harm: the next token is the server's clock in µs."""
LOOK_MS: Final = 1_000
"""Polling interval of waiters for a key, because redis-py's own lock sends no message at its release."""
LINE: Final = f"{NEWCOMERS_MAX} {WAITERS_MAX} {PASSED_MS} {LEFT_MS} {LINE_TTL_MS}"
"""Bounds of the line of processes that wait, as the script takes them."""


@light_dataclass(frozen=True, slots=True)
class AcquireLock(Operation[Acquired | Held | Unreplicated]):
    """Take the lock for `ttl_ms` if it is free. A repeat by the same holder id renews it and keeps its token.

    The key lives `delay_ms` longer than the lease. With `replicas`, that many must acknowledge within `within_ms`. With
    `is_key`, here and in the other operations, the name is the key itself, which redis-py's own lock may use too.

    Without a `party` an attempt takes a free lock also if others wait. With a `party`, the random name of a process
    that waits, a failed attempt keeps that process's place in the line of all processes. A free lock is left to the
    first of the line, for `LEFT_MS`, when others have had `NEWCOMERS_MAX` turns (`WAITERS_MAX` if they waited, too), or
    all turns for `PASSED_MS`.
    """

    lease_kind: ClassVar = "lock"
    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    replicas: int = 0
    within_ms: int = 0
    is_key: bool = False
    party: str = ""

    def call(self) -> Call:
        lease_ms = self.ttl_ms + self.delay_ms
        arguments = (self.holder_id, lease_ms, self.delay_ms, FENCE_IDLE_MS + lease_ms, asked_of(self.party))
        return Call(load_script("acquire_lock"), _with_line(self.name, is_key=self.is_key), arguments)

    def answer(self, reply: Reply) -> Acquired | Held:
        kind, number, flag, *ahead = (reply.decode() if isinstance(reply, bytes) else reply).split(" ")
        if kind == "acquired":
            return Acquired(int(number), self.ttl_ms, replay=flag == "1")
        _check_kind(self.name, kind)
        free_in_ms = optional_number(number)
        if self.is_key:
            free_in_ms = LOOK_MS if free_in_ms is None else min(free_in_ms, LOOK_MS)
        return Held(free_in_ms, is_delayed=flag == "1", ahead=int(ahead[0]) if ahead else 0)

    def continued(self, answer: Any) -> Finish | None:
        return _await_replicas(self, answer) if self.replicas else None

    def takes(self, answer: Any) -> bool:
        return isinstance(answer, Acquired)


@light_dataclass(frozen=True, slots=True)
class LeaveLine(Release[bool]):
    """Take the process `party`, which waits no more, out of the line of a lock of any kind that has one.

    If it was the first, the next process is notified: to try now or, while another holds the lock, that it is the
    first. Takes nothing, so an undoing need not come after it. Returns whether the process had a place.
    """

    name: str
    party: str
    is_key: bool = False

    def call(self) -> Call:
        return leaving_call(_with_line(self.name, is_key=self.is_key), self.party)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class RenewLock(LeaseRenewal):
    """Extend the lease to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False

    def call(self) -> Call:
        keys = _listed(self.name, is_key=self.is_key)
        return Call(load_script("renew_lock"), keys, (self.holder_id, self.ttl_ms, self.delay_ms))

    def native(self, dialect: Dialect) -> Sequence[Command]:
        if self.delay_ms:  # the script checks whether only the delay is left
            return ()
        return (dialect.compare_and_keep(_keys(self).lock, self.holder_id, self.ttl_ms),)

    def native_answer(self, replies: Sequence[Reply]) -> Renewed | Lost:
        reply = replies[0]
        is_renewed = reply is not None and (text(reply) == "OK" or (isinstance(reply, int) and reply > 0))
        return Renewed(self.ttl_ms) if is_renewed else Lost()


@light_dataclass(frozen=True, slots=True)
class AdoptLock(Operation[Acquired | Lost]):
    """Find the lease of `holder_id`: returns its token and remaining time. Changes nothing.

    A key without expiry, which only another program can write, counts as one of `ttl_ms`.
    """

    lease_kind: ClassVar = "lock"
    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False

    def call(self) -> Call:
        keys = _listed(self.name, is_key=self.is_key)
        return Call(load_script("adopt_lock"), keys, (self.holder_id, self.delay_ms))

    def answer(self, reply: Reply) -> Acquired | Lost:
        _check_kind(self.name, text(reply[0]))
        if text(reply[0]) == "lost":
            return Lost()
        remaining_ms = optional_number(reply[1])
        return Acquired(int(reply[2]), self.ttl_ms if remaining_ms is None else remaining_ms, replay=True)


@light_dataclass(frozen=True, slots=True)
class RenameHolder(Operation[bool]):
    """Give the lease of `holder_id` to `new_holder_id`, with its token and its end. False if it belongs to neither.

    Afterwards, operations with the old holder id get Lost.
    """

    name: str
    holder_id: str
    new_holder_id: str
    is_key: bool = False

    def call(self) -> Call:
        keys = _listed(self.name, is_key=self.is_key)
        return Call(load_script("rename_holder"), keys, (self.holder_id, self.new_holder_id))

    def answer(self, reply: Reply) -> bool:
        return text(reply[0]) == "renamed"


@light_dataclass(frozen=True, slots=True)
class ReleaseLock(LeaseRelease):
    """Delete the lock if it is the holder's, and wake a waiter. A repeat gets Released until another releases it.

    A `quiet` release wakes no waiter, because the caller sends the attempt of one right behind it.
    """

    name: str
    holder_id: str
    delay_ms: int = 0
    is_key: bool = False
    quiet: bool = False

    def call(self) -> Call:
        keys = _listed(self.name, is_key=self.is_key)
        arguments = (self.holder_id, self.delay_ms)
        return Call(load_script("release_lock"), keys, (*arguments, "1") if self.quiet else arguments)

    def answer(self, reply: Reply) -> Released | Lost:
        if text(reply[0]) == "released":
            return Released()
        said = text(reply[1])
        if said == "forgotten":
            return Lost(is_forgotten=not self.is_key)  # redis-py's own lock has no fence
        return Lost(revoked_token=optional_number(said))

    def native(self, dialect: Dialect) -> Sequence[Command]:
        if self.delay_ms:
            return ()
        keys = _keys(self)
        deleting = dialect.compare_and_delete(keys.lock, self.holder_id)
        return (deleting,) if self.quiet else (deleting, ("PUBLISH", keys.freed, self.holder_id))

    def native_answer(self, replies: Sequence[Reply]) -> Released | None:
        return Released() if int(replies[0]) > 0 else None  # 0 means "gone" or "another's": the script can tell

    def wakes(self) -> tuple[str, str]:
        return _keys(self).freed, self.holder_id

    def quietly(self) -> ReleaseLock:
        return replace(self, quiet=True)


def _keys(operation: AcquireLock | AdoptLock | RenewLock | RenameHolder | ReleaseLock) -> LockKeys:
    return named_lock_keys(operation.name) if operation.is_key else lock_keys(operation.name)


@lru_cache(KEPT_MAX)
def _listed(name: str, *, is_key: bool) -> tuple[str, ...]:
    """Return KEYS of every lock script; cached, because each call needs them."""
    return tuple((named_lock_keys(name) if is_key else lock_keys(name)).listed())


@lru_cache(KEPT_MAX)
def _with_line(name: str, *, is_key: bool) -> tuple[str, ...]:
    """Return KEYS of the scripts that acquire, and that leave the line."""
    return (*_listed(name, is_key=is_key), (named_lock_keys(name) if is_key else lock_keys(name)).line)


def asked_of(party: str) -> str:
    """Return how a caller asks, as the scripts take it (`shared/line.lua`)."""
    return f"{LINE} {party}" if party not in {"", NEWCOMER} else party


def acquired_or_held(
    reply: Reply, name: str, ttl_ms: int, kind: str, *, next_in_ms: int | None = None
) -> Acquired | Held:
    """Read the answer to an acquire of another kind of lock. Raises WrongKind."""
    match text(reply[0]):
        case "wrong_kind":
            raise WrongKind(f"the name {name!r} belongs to another kind of lock, not to a {kind}")
        case "held":
            return Held(optional_number(reply[1]), ahead=sum(map(int, reply[2:])))
    return Acquired(int(reply[1]), ttl_ms, replay=text(reply[2]) == "1", next_in_ms=next_in_ms)


def _check_kind(name: str, said: str) -> None:
    if said == "wrong_kind":
        raise WrongKind(f"{name!r} is a fair lock, which an operation on a plain lock cannot use")


def leaving_call(keys: Sequence[str], party: str) -> Call:
    """Return the call that takes a process out of a line, with KEYS lock, notes, freed and line."""
    return script_call("leave_line", keys, asked_of(party))


def _await_replicas(operation: AcquireLock, answer: Acquired | Held) -> Exchange[Acquired | Held | Unreplicated]:
    """Wait until replicas acknowledge the write: a repeat writes too, otherwise WAIT would count wrongly."""
    if not isinstance(answer, Acquired):
        return answer
    count = yield from awaited(replicas_wait(operation.replicas, operation.within_ms))
    return answer if count >= operation.replicas else Unreplicated(operation.replicas, count)
