"""The reaper frees what dead holders left, and never what a live holder has.

A holder is live until its lease expires, by the store's clock, which is read in the same step that frees. So any number
of reapers may run at once, in any process and with any local clock. Nothing depends on a reaper: an expired claim
blocks nobody. A reaper wakes the waiters at once, keeps the list of held keys short, and marks unknown runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from segmented.dedup.terms import DAY, checked_namespace
from segmented.errors import InvalidInput, SegmentedError
from segmented.locks.durations import is_whole, milliseconds
from segmented.models.dedup import RecordName
from segmented.once_keys import ONCE_PARTITIONS
from segmented.plans import Batch, Now, Plan, perform, run_async, run_sync
from segmented.protocol import ListClaims, ReapKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models.dedup import Claim
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
LIMIT: Final = 10_000
PAGE: Final = 100
"""Claims of one partition that are read and reaped at once."""
BATCH_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReapCount:
    """The outcome of one pass over the expired claims."""

    freed: int = 0
    unknown: int = 0
    """Number of claims that became unknown: a resolver or a human must settle them."""
    held: int = 0
    """Number of claims that another process renewed, settled or freed between the read and the reaping."""

    @property
    def looked_at(self) -> int:
        """Return how many claims were checked."""
        return self.freed + self.unknown + self.held


def reap_plan(namespace: str, *, limit: int = LIMIT, remember: float = DAY) -> Plan[ReapCount]:
    """Go over the partitions until no expired claim is left, or `limit` claims were checked."""
    namespace = checked_namespace(namespace)
    if not is_whole(limit) or limit < 1:
        message = f"the limit of {limit!r} claims is wrong: give a whole number of 1 or more"
        raise InvalidInput(message)
    remember_ms = milliseconds(remember, "remember")
    count = ReapCount()
    partitions: list[int] = list(range(ONCE_PARTITIONS))
    while partitions and count.looked_at < limit:
        asked = tuple(ListClaims(namespace, partition, PAGE, only_lapsed=True) for partition in partitions)
        pages = yield from batch(asked)
        claims = [claim for page in pages for claim in page][: limit - count.looked_at]
        partitions = [partition for partition, page in zip(partitions, pages, strict=True) if len(page) == PAGE]
        for start in range(0, len(claims), PAGE):
            count = yield from _reaped(namespace, claims[start : start + PAGE], remember_ms, count)
    return count


def reap(store: Store, namespace: str, *, limit: int = LIMIT, remember: float = DAY) -> ReapCount:
    """Free the expired claims of a namespace, at most `limit`, and return the counts.

    `remember`: minimum seconds for which the rest of the key's record is kept. Safe to run at any time, in any number
    of processes. Unknown runs stay unknown until they are settled.
    """
    return run_sync(reap_plan(namespace, limit=limit, remember=remember), store)


async def async_reap(store: AsyncStore, namespace: str, *, limit: int = LIMIT, remember: float = DAY) -> ReapCount:
    """Free the expired claims of a namespace over an asyncio store; see `reap`."""
    return await run_async(reap_plan(namespace, limit=limit, remember=remember), store)


def batch(operations: tuple[Operation[AnswerT], ...]) -> Plan[list[AnswerT]]:
    """Perform operations that do not depend on each other. Raises the first failure."""
    if not operations:
        return []
    now = yield from perform(Now())
    answers = yield from perform(Batch(operations, now + BATCH_SECONDS))
    found: list[AnswerT] = []
    for answer in answers:
        if isinstance(answer, SegmentedError):
            raise answer
        found.append(answer)
    return found


def _reaped(namespace: str, claims: Sequence[Claim], remember_ms: int, count: ReapCount) -> Plan[ReapCount]:
    asked = tuple(
        ReapKey(RecordName(namespace, claim.key), remember_ms, message=claim.message or "") for claim in claims
    )
    results = [answer.result for answer in (yield from batch(asked))]
    return ReapCount(
        count.freed + results.count("freed"),
        count.unknown + results.count("unknown"),
        count.held + results.count("held"),
    )
