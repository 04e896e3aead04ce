"""How an order that is larger than what its home shard has free gets units from the other shards, or an exact refusal.

Units travel by numbered transfers (`operations.shards`), so whoever dies on the way leaves something that the next one
finishes. A refusal needs two looks at every shard: if no shard's free units grew in between, and nothing was on the way
at the first, then at the moment between the looks no more was free in all than the first look has found.

Who gathers does it alone, under a lock: two who gather at once for different shards would take the last units from each
other. The lock decides nothing else. Whoever cannot have it for a while goes on without it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented import operations as op
from segmented.errors import AcquireTimeout, LeaseLost, PoolMissing, SegmentedError, ShardVanished, StoreError
from segmented.locks.claim import new_holder_id
from segmented.locks.handle import acquire_plan
from segmented.locks.lock import LockClaim
from segmented.models import ShardFound
from segmented.plans import Batch, Now, Plan, perform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.clock import Clock
    from segmented.models import Shard, ShardDirectory, Transfer

LOOK_SECONDS: Final = 2.0
"""How long a shard may keep a look at all of them waiting."""
ALONE_TTL_MS: Final = 2_000
ALONE_SECONDS: Final = 2.0
"""How long who gathers waits for another to end."""
SHORTAGE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class FreeInAll:
    """What all shards had free, and on hold, at one moment after the local time `asked_at`."""

    available: int
    reserved: int
    asked_at: float


class Shortage:
    """What this process has found out about the whole pool, for a tenth of a second.

    After the sell-out every order would look at all shards twice. Instead it is refused by what another order of this
    process has just found, after its home shard was asked: exact as of that age. What this process gives back ends it.
    """

    def __init__(self, clock: Clock) -> None:
        """Know nothing yet."""
        self._clock = clock
        self._found: FreeInAll | None = None
        self._returned_at = float("-inf")

    def of(self, wanted: int) -> FreeInAll | None:
        """Return what refuses `wanted` units, if that is known."""
        found = self._found
        if found is None or wanted <= found.available or self._clock.now() - found.asked_at >= SHORTAGE_SECONDS:
            return None
        return found

    def note(self, found: FreeInAll) -> None:
        """Remember a look, unless units came back since."""
        if found.asked_at > self._returned_at:
            self._found = found

    def clear(self) -> None:
        """Units came back."""
        self._found, self._returned_at = None, self._clock.now()


class Gathering:
    """Brings the units of one pool to where they are wanted."""

    def __init__(self, directory: ShardDirectory, clock: Clock) -> None:
        """Work on the shards of `directory`."""
        self.directory = directory
        self.shards: Sequence[Shard] = directory.shards
        self.shortage = Shortage(clock)

    def bring_plan(self, home: Shard, wanted: int) -> Plan[FreeInAll | None]:
        """See that `home` has `wanted` free units. None: try to take them now; else fewer are free in all shards.

        Raises StoreUnavailable when a shard cannot be asked, so that nobody knows.
        """
        known = self.shortage.of(wanted)
        if known is not None:
            return known
        lock = LockClaim(f"pool:{self.directory.sku}:gather", new_holder_id(), ALONE_TTL_MS)
        is_alone = yield from _entered(lock)
        try:
            known = self.shortage.of(wanted)  # found by who was here before
            found = known or (yield from self._brought(home, wanted))
        except GeneratorExit:  # the process is gone: the lock lapses
            raise
        except BaseException:
            yield from _left(lock, is_alone=is_alone)
            raise
        yield from _left(lock, is_alone=is_alone)
        if found is not None:
            self.shortage.note(found)
        return found

    def finish_plan(self, source: Shard, transfer: Transfer) -> Plan[None]:
        """Finish a transfer that may have arrived, or not."""
        target = self.shards[transfer.other]
        try:
            yield from perform(op.ReceiveUnits(target, source.number, transfer.number, transfer.units))
        except PoolMissing:
            raise ShardVanished(target) from None
        yield from perform(op.AcknowledgeUnits(source, transfer.other, transfer.number))

    def finish_all_plan(self) -> Plan[int]:
        """Finish every transfer that is on the way; returns how many were."""
        found, failure = yield from self._look()
        if failure is not None:
            raise failure
        count = 0
        for one in found.values():
            for transfer in one.away:
                yield from self.finish_plan(one.shard, transfer)
                count += 1
        return count

    # --- pieces ---

    def _look(self) -> Plan[tuple[dict[int, ShardFound], SegmentedError | None]]:
        """Look at every shard; what one found by its number, and why another could not be asked."""
        deadline = (yield from perform(Now())) + LOOK_SECONDS
        answers = yield from perform(Batch(tuple(op.LookAtShard(shard) for shard in self.shards), deadline))
        found = {number: answer for number, answer in enumerate(answers) if isinstance(answer, ShardFound)}
        failures = [answer for answer in answers if isinstance(answer, SegmentedError)]
        for failure in failures:
            if isinstance(failure, PoolMissing):
                raise ShardVanished(failure.sku)
        return found, failures[0] if failures else None

    def _brought(self, home: Shard, wanted: int) -> Plan[FreeInAll | None]:
        asked_at = yield from perform(Now())
        found, failure = yield from self._look()
        has_finished = False
        for number, one in found.items():
            for transfer in one.away:
                try:
                    yield from self.finish_plan(self.shards[number], transfer)
                    has_finished = True
                except StoreError as error:
                    failure = failure or error  # its target cannot be asked: what it has may be enough
        if has_finished:
            return None
        in_all = sum(one.available for one in found.values())
        if in_all >= wanted and home.number in found:
            yield from self._moved(home, wanted, found)
            return None
        if failure is not None:
            raise failure
        if any(one.is_more_due for one in found.values()):
            return None
        again, failure = yield from self._look()
        if failure is not None:
            raise failure
        if any(again[number].increases != one.increases for number, one in found.items()):
            return None
        return FreeInAll(in_all, sum(one.reserved for one in found.values()), asked_at)

    def _moved(self, home: Shard, wanted: int, found: dict[int, ShardFound]) -> Plan[None]:
        """Send units home, the richest shards first: at least half of what one has more, for the next orders."""
        have = found[home.number].available
        others = [number for number in found if number != home.number]
        failure: StoreError | None = None
        for number in sorted(others, key=lambda number: -found[number].available):
            if have >= wanted:
                return
            free = found[number].available
            units = min(free, max(wanted - have, (free - have) // 2))
            if units <= 0:
                break
            try:
                transfer = yield from perform(op.SendUnits(self.shards[number], home.number, units))
                if transfer is not None:
                    yield from self.finish_plan(self.shards[number], transfer)
                    have += transfer.units
            except StoreError as error:
                failure = error
        if have < wanted and failure is not None:
            raise failure


def _entered(lock: LockClaim) -> Plan[bool]:
    try:
        yield from acquire_plan(lock, ALONE_SECONDS)
    except (AcquireTimeout, LeaseLost, StoreError):
        return False
    return True


def _left(lock: LockClaim, *, is_alone: bool) -> Plan[None]:
    if is_alone:
        with suppress(StoreError):  # it lapses anyway
            yield from perform(lock.releasing())
