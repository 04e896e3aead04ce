"""Gathering: bring units from other shards to an order's home shard, or find that all shards together have too few.

Units travel by numbered transfers (`operations.shards`), so a process that dies leaves a transfer that the next one
finishes. A refusal needs two reads of every shard: if no shard's free units grew in between, and nothing was on the way
at the first read, then at a moment between the reads all shards together had no more free units than the first read
found.

Gathering runs under a lock: two gatherers for different shards would take the last units from each other. The lock
decides nothing else. A process that cannot get it for a while continues without it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from segmented import protocol as op
from segmented.errors import (
    AcquireTimeout,
    InvalidInput,
    LeaseLost,
    PoolDrifted,
    PoolUnverified,
    SegmentedError,
    ShardVanished,
    StoreError,
    StoreUnavailable,
)
from segmented.locks.claim import new_holder_id
from segmented.locks.handle import acquire_plan
from segmented.locks.lock import LockClaim
from segmented.models import Received, Shard, ShardDirectory, ShardFound, Transfer
from segmented.plans import Batch, Join, Leave, Now, Park, Plan, perform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from segmented.clock import Clock

LOOK_SECONDS: Final = 1.0
"""Maximum seconds that one shard may delay a read of all shards."""
DOWN_SECONDS: Final = 1.0
"""Seconds for which an unreachable shard is not tried again, while the others serve what they can."""
ALONE_TTL_MS: Final = 2_000
ALONE_SECONDS: Final = 2.0
"""Seconds to wait for another gather to finish."""
SHORTAGE_SECONDS: Final = 0.1
TURN_SECONDS: Final = 2.0
"""Seconds that an order waits for the result of another order of this process, before it reads the shards itself."""
AT_ONCE: Final = 0.0


@dataclass(frozen=True, slots=True)
class FreeInAll:
    """The maximum of free units, and the units on hold, in all shards at local time `asked_at`, between two reads."""

    available: int
    reserved: int
    asked_at: float
    sequences: Mapping[int, int]
    """Last change of each shard, at the second read."""
    free_in_ms: int | None
    """As in `SoldOut`."""


@dataclass(frozen=True, slots=True)
class Look:
    """One read of every shard."""

    found: tuple[ShardFound, ...]
    failure: SegmentedError | None
    """Why some shard could not be reached."""

    @property
    def available(self) -> int:
        """Free units in all shards that answered."""
        return sum(one.available for one in self.found)

    @property
    def reserved(self) -> int:
        """Units on hold in all shards that answered."""
        return sum(one.reserved for one in self.found)

    @property
    def free_in_ms(self) -> int | None:
        """Milliseconds until the first hold of some shard ends."""
        return min((one.free_in_ms for one in self.found if one.free_in_ms is not None), default=None)

    @property
    def is_more_due(self) -> bool:
        """Return whether expired holds remain to be processed."""
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
        """Return whether a shard has lost changes by a failover since, so that its counts are useless."""
        return any(sequence < earlier.sequences.get(number, 0) for number, sequence in self.sequences.items())

    def at(self, shard: Shard) -> int:
        """Free units in one shard; 0 if it did not answer."""
        return sum(one.available for one in self.found if one.shard == shard)


class Shortage:
    """The last finding of this process about the pool as a whole, kept for a tenth of a second.

    After the sell-out every order would read all shards twice. Instead, once its home shard has refused it, it is
    refused by the finding of another order of this process: exact as of that age. Units returned by this process end
    the finding.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: FreeInAll | None = None
        self._returned_at = float("-inf")

    def of(self, wanted: int) -> FreeInAll | None:
        """Return the finding that refuses `wanted` units, if there is one."""
        found = self._found
        if found is None or wanted <= found.available or self._clock.now() - found.asked_at >= SHORTAGE_SECONDS:
            return None
        return found

    def note(self, found: FreeInAll) -> None:
        """Remember a finding, unless units came back since."""
        if found.asked_at > self._returned_at:
            self._found = found

    def clear(self) -> None:
        """Discard the finding, because units came back."""
        self._found, self._returned_at = None, self._clock.now()


class TransferBooks(Protocol):
    """The order database of a gated pool, as its transfers need it."""

    def store(self, source: Shard, target: Shard, transfer: Transfer) -> Plan[bool]:
        """Store a transfer that was sent; False if the source must be rebuilt first."""

    def look(self, shard: Shard) -> Plan[ShardFound]:
        """Read a shard that must be verified first."""


class Gathering:
    """Brings the units of one pool to the shards that need them."""

    def __init__(self, directory: ShardDirectory, clock: Clock, books: TransferBooks | None = None) -> None:
        """Create a gatherer for the shards of `directory`; in a gated pool, `books` store each transfer."""
        self.directory = directory
        self.shards: Sequence[Shard] = directory.shards
        self.shortage = Shortage(clock)
        self._books = books
        self._down: dict[int, tuple[SegmentedError, float]] = {}
        """Unreachable shards: why, and the local time from which they are tried again."""
        self._alone_from = float("-inf")
        """Local time from which the lock is tried again."""

    def bring_plan(self, home: Shard, wanted: int, deadline: float = inf) -> Plan[FreeInAll | None]:
        """Bring units to `home` until `wanted` are free. None: try to take them now; otherwise all shards have too few.

        Waits for no other process beyond the local time `deadline`. Raises StoreUnavailable when the answer depends on
        a shard that cannot be reached.
        """
        known = self.shortage.of(wanted)
        if known is not None:
            return known
        place = yield from perform(Join(f"pool:{self.directory.sku}:looking"))
        try:
            if place.is_behind:  # the result of the order before us in this process may be enough
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
        """Finish a transfer that may or may not have arrived."""
        if not 0 <= transfer.other < len(self.shards) or transfer.other == source.number:
            raise PoolDrifted(source)
        target, epoch = self.shards[transfer.other], transfer.epoch
        received = yield from self.receive_plan(source, target, transfer)
        if received is not None and not received.later_epoch:
            yield from perform(op.AcknowledgeUnits(source, transfer.other, transfer.number, epoch))
            return
        # The source was to be rebuilt or thawed in a later epoch. If it still sells in this one, it has forgotten that.
        with suppress(InvalidInput):
            yield from perform(op.FreezePool(source, epoch))

    def receive_plan(self, source: Shard, target: Shard, transfer: Transfer) -> Plan[Received | None]:
        """Add what `target` lacks of the units that `source` has sent to it; the books of a gated pool move them first.

        None: the books refuse them, because the source must be rebuilt.
        """
        is_stored = self._books is not None
        if self._books is not None and not (yield from self._books.store(source, target, transfer)):
            return None
        operation = op.ReceiveUnits(target, source.number, transfer.number, transfer.sent, transfer.epoch, is_stored)
        return (yield from perform(operation))

    def finish_all_plan(self) -> Plan[int]:
        """Finish every pending transfer; return how many there were."""
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
        """Read every shard: bring units home if there are enough, otherwise read again to be certain."""
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
        found = FreeInAll(look.available, look.reserved, between, again.sequences, again.free_in_ms)
        self.shortage.note(found)
        return found

    def _look(self) -> Plan[Look]:
        """Read every shard. A shard that recently failed is not tried again by every caller."""
        now = yield from perform(Now())
        down = dict(self._down)  # other threads modify it
        failures = [error for error, until in down.values() if now < until]
        asked = [shard for shard in self.shards if shard.number not in down or now >= down[shard.number][1]]
        for number in {shard.number for shard in asked} & set(down):  # others go on without it meanwhile
            self._down[number] = down[number][0], now + LOOK_SECONDS + DOWN_SECONDS
        answers = yield from perform(Batch(tuple(map(op.LookAtShard, asked)), now + LOOK_SECONDS))
        if self._books is not None:
            answers = yield from self._verified(self._books, asked, answers)
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

    def _verified(
        self, books: TransferBooks, asked: Sequence[Shard], answers: Sequence[ShardFound | SegmentedError]
    ) -> Plan[list[ShardFound | SegmentedError]]:
        """Return the answers; a shard is read again after the database has compared it or settled its ended holds."""
        found = list(answers)
        for place, answer in enumerate(answers):
            if isinstance(answer, PoolUnverified) or (isinstance(answer, ShardFound) and answer.free_in_ms == 0):
                try:
                    found[place] = yield from books.look(asked[place])
                except SegmentedError as error:
                    found[place] = error
        return found

    def _brought(self, home: Shard, wanted: int) -> Plan[None]:
        """Finish pending transfers; if there were none, send the units that `home` lacks."""
        look = yield from self._look()
        failure, has_finished = look.failure, False
        seen = {one.shard.number for one in look.found}
        for source, transfer in look.away:
            if transfer.other < len(self.shards) and transfer.other not in seen:
                continue  # its target cannot be reached: the other shards may have enough
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
        """Send units home, fullest shards first: at least half of a shard's surplus, for the next orders."""
        have = free.pop(home.number)
        failure: StoreError | None = None
        for number in sorted(free, key=lambda number: -free[number]):
            if have >= wanted:
                return
            units = min(free[number], max(wanted - have, (free[number] - have) // 2))
            if units <= 0:
                break
            try:
                transfer = yield from perform(
                    op.SendUnits(self.shards[number], home.number, units, self._books is not None)
                )
                if transfer is not None:  # perhaps another process's on the same way, of any number of units
                    yield from self.finish_plan(self.shards[number], transfer)
                    have += transfer.units
            except StoreError as error:
                failure = error
        if have < wanted and failure is not None:
            raise failure

    def _alone(self, plan: Plan[None], deadline: float) -> Plan[None]:
        """Run a plan while no other process does, if the lock is free soon."""
        lock = LockClaim(f"pool:{self.directory.sku}:gather", new_holder_id(), ALONE_TTL_MS)
        is_alone = yield from self._entered(lock, deadline)
        try:
            yield from plan
        except GeneratorExit:  # the process is gone: the lock's lease expires
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
            yield from acquire_plan(lock, max(0.0, min(ALONE_SECONDS, deadline - now)), is_patient=False)
        except StoreError:
            self._alone_from = (yield from perform(Now())) + ALONE_SECONDS
            return False
        except (AcquireTimeout, LeaseLost):
            return False
        return True


def _left(lock: LockClaim, *, is_alone: bool) -> Plan[None]:
    if is_alone:
        with suppress(StoreError):  # its lease expires on its own
            yield from perform(lock.releasing())
