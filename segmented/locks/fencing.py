"""Fencing: sequencers, and ready-made checks of fencing tokens.

A sequencer is a text with the name of a lock, the mode in which it is held, and the generation that holds it,
after Chubby (Burrows, "The Chubby lock service for loosely-coupled distributed systems", 2006, section 2.4). A holder
sends it to a resource together with its request. The resource asks the lock's server whether that generation is still
current, or compares the generation with the newest one it has seen (`FenceGuard`), which needs no server.

Guarantees: the lock of a current sequencer was held in that mode and by that generation when the server answered. Not
guaranteed: that it is still held when the resource acts. Only the resource's own comparison, in one step with the
write, closes that gap; asking the server is for resources that cannot remember a number or want to refuse early. If
another library's client takes the lock's key without a token, nothing distinguishes it from our last holder.

The checks, for any resource in this process, for a SQL row and for a value in Redis, follow one rule, after Kleppmann
("How to do distributed locking", 2016): a resource remembers the highest token that has reached it and refuses a lower
one. An equal token comes from the same holder, which may write again. Once a holder's token has reached the resource,
every earlier holder is refused, however long it was paused. Not guaranteed: anything before that, or anything at all if
tokens of different locks are compared with each other, or if the comparison and the write are two steps. `FenceGuard`
only compares: if threads may interleave, hold an in-process lock around the check and the write.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, unquote

from segmented.errors import InvalidInput, StaleToken
from segmented.locks.durations import NAME_LENGTH_MAX, checked_name, is_whole
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.protocol import CheckSequencer, FencedSet

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, SQLColumnExpression

    from segmented.locks.claim import LeaseClaim
    from segmented.models import Standing
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol.sequencer import Mode

TOKEN_MAX: Final = 2**63 - 1
SHOWN_MAX: Final = 80
TEXT: Final = re.compile(
    rf"v1:(?P<mode>exclusive|shared):(?P<name>[\w.~%-]{{1,{12 * NAME_LENGTH_MAX}}}):(?P<token>[1-9]\d{{0,18}})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Sequencer:
    """A lock, a mode and a generation. As a text: `v1:MODE:NAME:TOKEN`, the name percent-encoded."""

    name: str
    mode: Mode
    fencing_token: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", checked_name(self.name))
        object.__setattr__(self, "fencing_token", checked_token(self.fencing_token))
        if self.mode not in {"exclusive", "shared"}:
            raise InvalidInput(f"a sequencer's mode is exclusive or shared, not {self.mode!r}")

    @classmethod
    def of(cls, claim: LeaseClaim, fencing_token: int) -> Sequencer:
        """Return the sequencer of a claim that was granted with a token."""
        return cls(claim.name, cast("Mode", claim.mode), fencing_token)

    @classmethod
    def parse(cls, text: str) -> Sequencer:
        """Parse a text that `lease.sequencer()` returned. Raises InvalidInput for any other."""
        try:
            found = TEXT.fullmatch(text)
        except TypeError:  # bytes or another type
            found = None
        if found is not None:
            sequencer = cls(unquote(found["name"]), cast("Mode", found["mode"]), int(found["token"]))
            if str(sequencer) == text:  # each sequencer has exactly one text
                return sequencer
        shown = repr(text)
        shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
        raise InvalidInput(f"{shown} is not a sequencer: the forms are v1:exclusive:NAME:TOKEN or v1:shared:NAME:TOKEN")

    def __str__(self) -> str:
        return f"v1:{self.mode}:{quote(self.name, safe='')}:{self.fencing_token}"

    def is_current(self, store: Store) -> bool:
        """Return whether, by the lock's server, this generation holds the lock now.

        Raises WrongKind for a semaphore, whose permits each have their own generation.
        """
        return run_sync(self._is_current(), store)

    async def async_is_current(self, store: AsyncStore) -> bool:
        """Return whether, by the lock's server, this generation holds the lock now; see `is_current`."""
        return await run_async(self._is_current(), store)

    def _is_current(self) -> Plan[bool]:
        standing = yield from perform(CheckSequencer(self.name, self.mode, self.fencing_token))
        return standing.is_good


def checked_token(token: int) -> int:
    """Return the token. Raises InvalidInput unless it is a fencing token."""
    if not is_whole(token) or not 1 <= token <= TOKEN_MAX:
        raise InvalidInput(f"{token!r} is not a fencing token: give a whole number of 1 or more")
    return int(token)  # of an enumeration's member, the value


class FenceGuard:
    """The newest token of each resource, in the memory of the process that owns the resources. Threads may share it.

    It keeps one number per resource name until `forget`. A process that restarts begins with none: if the resource
    outlives the process, keep the number beside the resource, as `fenced_where` and `fenced_set` do.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._newest: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<FenceGuard of {len(self._newest)} resources>"

    def check(self, resource: str, *, token: int) -> None:
        """Record the token. Raises StaleToken if a higher one was recorded before."""
        self._compare(resource, checked_token(token), is_noted=True)

    def check_sequencer(self, text: str) -> Sequencer:
        """Check the generation in a sequencer and return the sequencer. The lock's name is the resource's name.

        Readers share a lock, so a later writer makes a reader stale, and a later reader does not.
        Raises InvalidInput for a text that is not a sequencer, StaleToken for a stale one.
        """
        sequencer = Sequencer.parse(text)
        self._compare(sequencer.name, sequencer.fencing_token, is_noted=sequencer.mode == "exclusive")
        return sequencer

    def newest(self, resource: str) -> int | None:
        """Return the highest token recorded, or None before the first."""
        with self._guard:
            return self._newest.get(resource)

    def forget(self, resource: str) -> None:
        """Forget a resource that is gone. The next check of that name accepts any token."""
        with self._guard:
            self._newest.pop(resource, None)

    def _compare(self, resource: str, token: int, *, is_noted: bool) -> None:
        with self._guard:
            newest = self._newest.get(resource, 0)
            if token < newest:
                raise StaleToken(resource, token, newest)
            if is_noted:
                self._newest[resource] = token


def fenced_where(fence: SQLColumnExpression[Any], *, token: int) -> tuple[ColumnElement[bool], dict[str, int]]:
    """Return the condition and the values that fence an UPDATE: `fence IS NULL OR fence <= :token`, `fence = :token`.

    The column is a BIGINT: tokens are microseconds since 1970. If the UPDATE changes no row, either the row has a
    higher token or it does not exist; read it to find out. The comparison and the write are one statement and so safe
    at every isolation level.

    ```python
    condition, values = fenced_where(account.c.fence, token=lease.fencing_token)
    done = connection.execute(account.update().where(account.c.id == 7, condition).values(balance=10, **values))
    ```
    """
    token = checked_token(token)
    return fence.is_(None) | (fence <= token), {str(fence.key): token}  # type: ignore[attr-defined]  # columns have one


def fenced_set(store: Store, key: str, value: str, *, token: int) -> None:
    """Write a plain value into Redis. Raises StaleToken if a higher token has written it before.

    A key beside `key`, in the same hash slot, keeps the highest token and never expires. Deleting the value alone keeps
    the fence.
    """
    run_sync(_set(key, value, token), store)


async def async_fenced_set(store: AsyncStore, key: str, value: str, *, token: int) -> None:
    """Write a plain value into Redis. Raises StaleToken if a higher token has written it before; see `fenced_set`."""
    await run_async(_set(key, value, token), store)


def _set(key: str, value: str, token: int) -> Plan[None]:
    key, value = str.__str__(key), str.__str__(value)  # not the name of an enumeration's member
    standing: Standing = yield from perform(FencedSet(key, value, checked_token(token)))
    if not standing.is_good:
        raise StaleToken(key, token, standing.newest_token)
