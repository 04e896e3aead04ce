"""Ready-made checks of fencing tokens: for any resource in this process, for a SQL row, for a value in Redis.

All follow one rule, after Kleppmann ("How to do distributed locking", 2016): a resource remembers the highest token
that has reached it and refuses a lower one. An equal token comes from the same holder, which may write again.

Guarantees: once a holder's token has reached the resource, every earlier holder is refused, however long it was paused.
Not guaranteed: anything before that, or anything at all if tokens of different locks are compared with each other, or
if the comparison and the write are two steps. `FenceGuard` only compares: if threads may interleave, hold an in-process
lock around the check and the write.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from segmented.errors import StaleToken
from segmented.locks.sequencer import Sequencer, checked_token
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.protocol import FencedSet

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, SQLColumnExpression

    from segmented.models import Standing
    from segmented.plans.drivers import AsyncStore, Store


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
