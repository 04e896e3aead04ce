"""Ready-made checks of fencing tokens: for any resource in this process, for a SQL row, for a value in Redis.

The rule is everywhere the same, after Kleppmann ("How to do distributed locking", 2016): a resource remembers the
highest token that has reached it, and refuses a lower one. An equal token is the same holder, which may write again.

Guarantees: once a holder's token has reached the resource, no holder before it gets through, however long it slept.
Not guaranteed: anything before that; and nothing at all if tokens of different locks are compared with each other, or
if the comparison and the write are two steps. `FenceGuard` is a comparison alone: hold a lock of the process over the
check and the write if threads may interleave.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from segmented.errors import StaleToken
from segmented.locks.sequencer import Sequencer, checked_token
from segmented.plans import perform, run_async, run_sync
from segmented.protocol import FencedSet

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, SQLColumnExpression

    from segmented.models import Standing
    from segmented.plans import Plan
    from segmented.plans.drivers import AsyncStore, Store


class FenceGuard:
    """The newest token of each resource, in the memory of the process that is the resource. May be shared by threads.

    One number a resource name is kept until `forget`. A process that restarts begins with none: where the resource
    outlives the process, the number has to be kept beside it, as `fenced_where` and `fenced_set` do.
    """

    def __init__(self) -> None:
        """Have seen none."""
        self._guard = threading.Lock()
        self._newest: dict[str, int] = {}

    def check(self, resource: str, *, token: int) -> None:
        """Note the token, or raise StaleToken if a higher one has been here."""
        self._compare(resource, checked_token(token), is_noted=True)

    def check_sequencer(self, text: str) -> Sequencer:
        """Check the generation that a sequencer names, and return it. The lock's name is the resource's.

        Readers share a lock, so a reader is refused once a later writer has been here, and not for a later reader.
        Raises InvalidInput for what is no sequencer, StaleToken for one that was overtaken.
        """
        sequencer = Sequencer.parse(text)
        self._compare(sequencer.name, sequencer.fencing_token, is_noted=sequencer.mode == "exclusive")
        return sequencer

    def newest(self, resource: str) -> int | None:
        """Return the highest token that has been here; None before the first."""
        with self._guard:
            return self._newest.get(resource)

    def forget(self, resource: str) -> None:
        """Forget a resource that is gone; whoever comes next for the name is let in, whatever the token."""
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
    """Return what fences an UPDATE: the condition `fence IS NULL OR fence <= :token`, and the values `fence = :token`.

    The column is a BIGINT: tokens are microseconds since 1970. An UPDATE of no row has met a higher token, or there is
    no such row; read it to tell which. Comparison and write are one statement, and so safe at every isolation level.

    ```python
    condition, values = fenced_where(account.c.fence, token=lease.fencing_token)
    done = connection.execute(account.update().where(account.c.id == 7, condition).values(balance=10, **values))
    ```
    """
    checked_token(token)
    return fence.is_(None) | (fence <= token), {str(fence.key): token}  # type: ignore[attr-defined]  # columns have one


def fenced_set(store: Store, key: str, value: str, *, token: int) -> None:
    """Write a plain value into Redis unless a higher token has written it; raises StaleToken then.

    The highest token is kept under a key beside `key`, in the same hash slot, without an end. Who deletes the value and
    keeps that key keeps the fence.
    """
    run_sync(_set(key, value, token), store)


async def fenced_set_async(store: AsyncStore, key: str, value: str, *, token: int) -> None:
    """Write as `fenced_set` does, for asyncio."""
    await run_async(_set(key, value, token), store)


def _set(key: str, value: str, token: int) -> Plan[None]:
    standing: Standing = yield from perform(FencedSet(key, value, checked_token(token)))
    if not standing.is_good:
        raise StaleToken(key, token, standing.newest_token)
