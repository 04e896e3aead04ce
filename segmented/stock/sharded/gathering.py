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
from math import inf
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import (
    AcquireTimeout,
    LeaseLost,
    PoolDrifted,
    SegmentedError,
    ShardVanished,
    StoreError,
    StoreUnavailable,
)
from segmented.locks.claim import new_holder_id
from segmented.locks.handle import acquire_plan
from segmented.locks.lock import LockClaim
from segmented.models import ShardFound
from segmented.plans import Batch, Join, Leave, Now, Park, Plan, perform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from segmented.clock import Clock
    from segmented.models import Shard, ShardDirectory, Transfer

LOOK_SECONDS: Final = 1.0
"""How long a shard may keep a look at all of them waiting."""
DOWN_SECONDS: Final = 1.0
"""How long a shard that could not be asked is left alone: meanwhile the others serve what they can."""
ALONE_TTL_MS: Final = 2_000
ALONE_SECONDS: Final = 2.0
"""How long who gathers waits for another to end."""
SHORTAGE_SECONDS: Final = 0.1
TURN_SECONDS: Final = 2.0
"""How long one order of a process waits for what another of it finds, before it looks by itself."""
AT_ONCE: Final = 0.0


@dataclass(frozen=True, slots=True)
class FreeInAll:
    """What all shards had free at most, and on hold, at the local time `asked_at`, between two looks."""

    available: int
    reserved: int
    asked_at: float
    sequences: Mapping[int, int]
    """Last change of each shard, at the second look."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at every shard."""

    found: tuple[ShardFound, ...]
    failure: SegmentedError | None
    """Why some shard could not be asked."""

    @property
    def available(self) -> int:
        """Units free in all that answered."""
        return sum(one.available for one in self.found)

    @property
    def reserved(self) -> int:
        """Units on hold in all that answered."""
        return sum(one.reserved for one in self.found)

    @property
    def is_more_due(self) -> bool:
        """Are lapsed holds left to be given back?"""
        return any(one.is_more_due for one in self.found)

    @property
    def away(self) -> list[tuple[Shard, Transfer]]:
        """Transfers that may not have arrived, with the shards that sent them."""
        return [(one.shard, transfer) for one in self.found for transfer in one.away]

    @property
    def increases(self) -> dict[int, int]:
        """How often each shard's free units have grown."""
        return {one.shard.number: one.increases for one in self.found}

    @property
    def sequences(self) -> dict[int, int]:
        """Last change of each shard."""
        return {one.shard.number: one.sequence for one in self.found}

    def went_back_since(self, earlier: Look) -> bool:
        """Has a shard lost changes since, by a failover? Then its counts say nothing."""
        return any(sequence < earlier.sequences.get(number, 0) for number, sequence in self.sequences.items())

    def at(self, shard: Shard) -> int:
        """Units free in one shard; 0 if it did not answer."""
        return sum(one.available for one in self.found if one.shard == shard)


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
        self._down: dict[int, tuple[SegmentedError, float]] = {}
        """Shards that could not be asked: why, and the local time from which they are asked again."""
        self._alone_from = float("-inf")
        """Local time from which the lock is asked for again."""

    def bring_plan(self, home: Shard, wanted: int, deadline: float = inf) -> Plan[FreeInAll | None]:
        """See that `home` has `wanted` free units. None: try to take them now; else fewer are free in all shards.

        Waits for nobody beyond the local time `deadline`. Raises StoreUnavailable when a shard cannot be asked, so that
        nobody knows.
        """
        known = self.shortage.of(wanted)
        if known is not None:
            return known
        place = yield from perform(Join(f"pool:{self.directory.sku}:looking"))
        try:
            if place.is_behind:  # what who is before us in this process finds may do for us
                until = min(deadline, (yield from perform(Now())) + TURN_SECONDS)
                yield from perform(Park(place, inf, until))
            found = self.shortage.of(wanted) or (yield from self._looked(home, wanted, deadline))
        except GeneratorExit:
            raise
        except BaseException:
            yield from perform(Leave(place, AT_ONCE))
            raise
        yield from perform(Leave(place, AT_ONCE))
        return found

    def finish_plan(self, source: Shard, transfer: Transfer) -> Plan[None]:
        """Finish a transfer that may have arrived, or not."""
        if not 0 <= transfer.other < len(self.shards) or transfer.other == source.number:
            raise PoolDrifted(source)
        target = self.shards[transfer.other]
        yield from perform(op.ReceiveUnits(target, source.number, transfer.number, transfer.sent))
        yield from perform(op.AcknowledgeUnits(source, transfer.other, transfer.number))

    def finish_all_plan(self) -> Plan[int]:
        """Finish every transfer that is on the way; returns how many were."""
        self._down.clear()
        look = yield from self._look()
        if look.failure is not None:
            raise look.failure
        failure: SegmentedError | None = None
        for source, transfer in look.away:
            try:
                yield from self.finish_plan(source, transfer)
            except SegmentedError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return len(look.away)

    # --- pieces ---

    def _looked(self, home: Shard, wanted: int, deadline: float) -> Plan[FreeInAll | None]:
        """Look at every shard: bring units home if there are enough, else look again to be sure that there are not."""
        look = yield from self._look()
        if look.available >= wanted or look.away:
            if look.away or look.at(home) < wanted:
                yield from self._alone(self._brought(home, wanted), deadline)
            return None
        if look.failure is not None:
            raise look.failure
        if look.is_more_due:
            return None
        between = yield from perform(Now())
        again = yield from self._look()
        if again.failure is not None or again.increases != look.increases or again.went_back_since(look):
            return None
        found = FreeInAll(look.available, look.reserved, between, again.sequences)
        self.shortage.note(found)
        return found

    def _look(self) -> Plan[Look]:
        """Look at every shard. One that could not be asked a moment ago is not asked by everybody again."""
        now = yield from perform(Now())
        down = dict(self._down)  # other threads change it
        failures = [error for error, until in down.values() if now < until]
        asked = [shard for shard in self.shards if shard.number not in down or now >= down[shard.number][1]]
        for number in {shard.number for shard in asked} & set(down):  # others go on without it meanwhile
            self._down[number] = down[number][0], now + LOOK_SECONDS + DOWN_SECONDS
        answers = yield from perform(Batch(tuple(map(op.LookAtShard, asked)), now + LOOK_SECONDS))
        found: list[ShardFound] = []
        for shard, answer in zip(asked, answers, strict=True):
            if isinstance(answer, ShardFound):
                found.append(answer)
                self._down.pop(shard.number, None)
            elif isinstance(answer, ShardVanished):
                raise answer
            else:
                failures.append(answer)
                if isinstance(answer, StoreUnavailable):
                    self._down[shard.number] = answer, (yield from perform(Now())) + DOWN_SECONDS
        return Look(tuple(found), failures[0] if failures else None)

    def _brought(self, home: Shard, wanted: int) -> Plan[None]:
        """Finish what is on the way; if nothing was, send what `home` lacks."""
        look = yield from self._look()
        failure, has_finished = look.failure, False
        seen = {one.shard.number for one in look.found}
        for source, transfer in look.away:
            if transfer.other < len(self.shards) and transfer.other not in seen:
                continue  # its target cannot be asked: what the others have may be enough
            try:
                yield from self.finish_plan(source, transfer)
                has_finished = True
            except StoreError as error:
                failure = failure or error
        if has_finished:
            return
        free = {one.shard.number: one.available for one in look.found}
        if failure is not None and (home.number not in free or look.available < wanted):
            raise failure
        if look.available >= wanted:
            yield from self._moved(home, wanted, free)

    def _moved(self, home: Shard, wanted: int, free: dict[int, int]) -> Plan[None]:
        """Send units home, the richest shards first: at least half of what one has more, for the next orders."""
        have = free.pop(home.number)
        failure: StoreError | None = None
        for number in sorted(free, key=lambda number: -free[number]):
            if have >= wanted:
                return
            units = min(free[number], max(wanted - have, (free[number] - have) // 2))
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

    def _alone(self, plan: Plan[None], deadline: float) -> Plan[None]:
        """Run a plan while no other process does, if that can be had soon."""
        lock = LockClaim(f"pool:{self.directory.sku}:gather", new_holder_id(), ALONE_TTL_MS)
        is_alone = yield from self._entered(lock, deadline)
        try:
            yield from plan
        except GeneratorExit:  # the process is gone: the lock lapses
            raise
        except BaseException:
            yield from _left(lock, is_alone=is_alone)
            raise
        yield from _left(lock, is_alone=is_alone)

    def _entered(self, lock: LockClaim, deadline: float) -> Plan[bool]:
        now = yield from perform(Now())
        if now < self._alone_from:
            return False
        try:
            yield from acquire_plan(lock, max(0.0, min(ALONE_SECONDS, deadline - now)))
        except StoreError:
            self._alone_from = (yield from perform(Now())) + ALONE_SECONDS
            return False
        except (AcquireTimeout, LeaseLost):
            return False
        return True


def _left(lock: LockClaim, *, is_alone: bool) -> Plan[None]:
    if is_alone:
        with suppress(StoreError):  # it lapses anyway
            yield from perform(lock.releasing())
