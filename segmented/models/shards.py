"""Shards of a pool: their names, their directory, and units on the way between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, digits
from typing import Final, Literal, Self

from segmented.errors import InvalidInput
from segmented.models.ids import SKU_BYTES_MAX, checked_id, shortened
from segmented.models.pools import PoolState, Transfer, is_profile

SHARD_MARK: Final = "\x1f"
"""Between the sku and the place of a shard. A sku has no control characters, so no pool has the name of a shard."""
SHARD_COUNT_MAX: Final = 64
PLACE: Final = re.compile("(0|[1-9][0-9]?)([a-z]{1,8})")
"""A shard's number and its salt, which has up to four letters today."""


class Shard(str):  # it is the name itself, wherever an operation asks for that of a pool
    """The name of one shard of a pool, which is a pool of its own: one hash slot, one atomic domain."""

    __slots__ = ()

    def __new__(cls, sku: str, number: int, salt: str) -> Self:
        """Name shard `number` of `sku`; the salt, some letters, determines its hash slot."""
        return super().__new__(cls, f"{sku}{SHARD_MARK}{number}{salt}")

    @property
    def sku(self) -> str:
        """The sku of its pool."""
        return self.partition(SHARD_MARK)[0]

    @property
    def number(self) -> int:
        """Its number among the shards of the pool, from 0."""
        return int(self.partition(SHARD_MARK)[2].rstrip(ascii_lowercase))

    @property
    def salt(self) -> str:
        """Letters that determine its hash slot."""
        return self.partition(SHARD_MARK)[2].lstrip(digits)

    def __repr__(self) -> str:
        return f"shard {self.number} of {self.sku!r}"

    def __getnewargs__(self) -> tuple[str, int, str]:  # type: ignore[override]  # as `__new__` takes them, not as str does
        """Return the arguments to unpickle it."""
        return self.sku, self.number, self.salt


def checked_pool_name(name: str) -> str:
    """Return the sku, or the Shard, that an outside text names. Raises InvalidInput for anything else.

    Does not check whether the pool exists: working on orders never opens one.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"{shortened(name)} names no pool")
    sku, mark, place = name.partition(SHARD_MARK)
    sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
    if not mark:
        return sku
    found = PLACE.fullmatch(place)
    if found is None or int(found[1]) >= SHARD_COUNT_MAX:
        raise InvalidInput(f"{shortened(name)} names no shard of {sku!r}")
    return Shard(sku, int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class ShardDirectory:
    """The description of a pool in shards, stored when it is opened; it never changes."""

    sku: str
    salts: tuple[str, ...]
    """One for each shard."""
    stock: int
    segment_count: int
    """Over all shards."""
    epoch: int
    limit_per_customer: int | None
    is_open: bool
    """False until every shard is open: nothing has been sold then, and opening the pool again continues with it."""
    profile: str = "memory"
    """When the pool acknowledges a change: the text of its `Profile`."""
    is_archived: bool = False
    """Whether all shards were archived: what is left is a note, and the pool can be opened again in a later epoch."""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The names of the shards."""
        return tuple(Shard(self.sku, number, salt) for number, salt in enumerate(self.salts))

    def shares(self, units: int) -> tuple[int, ...]:
        """Split a number over the shards as evenly as possible."""
        base, extra = divmod(units, len(self.salts))
        shares = tuple(base + (number < extra) for number in range(len(self.salts)))
        assert sum(shares) == units, "a split of units neither creates nor loses one"
        return shares

    @property
    def content(self) -> str:
        """The stored text, without its state."""
        numbers = f"{self.stock} {self.segment_count} {self.epoch} {self.limit_per_customer or 0}"
        return f"{','.join(self.salts)} {numbers} {self.profile}"


def parse_directory(sku: str, content: str, *, is_open: bool, is_archived: bool = False) -> ShardDirectory:
    """Parse `ShardDirectory.content`. Raises ValueError for anything else."""
    salts, *numbers, profile = content.split(" ")
    stock, segment_count, epoch, limit_per_customer = map(int, numbers)
    if not is_profile(profile):
        raise ValueError(profile)
    places, limit = tuple(salts.split(",")), limit_per_customer or None
    return ShardDirectory(sku, places, stock, segment_count, epoch, limit, is_open, profile, is_archived)


@dataclass(frozen=True, slots=True)
class ShardedState(PoolState):
    """The sum of a pool's shards, and each of them. Only each shard was read atomically."""

    shards: tuple[PoolState, ...] = ()

    @property
    def away(self) -> int:
        """Units that were sent and have not arrived: on the way, or lost by a failover.

        While orders are served they may be counted twice, or not at all.
        """
        return max(0, sum(shard.sent - shard.received for shard in self.shards))

    @property
    def is_sold_out(self) -> bool:
        """Whether no unit is free in any shard, and none is on its way between them."""
        return self.available + self.away == 0

    @property
    def condition(self) -> str:
        """Whether the pool sells, in the words of `segmented pool show`."""
        if self.frozen is None and not self.is_closed and any(shard.is_closed for shard in self.shards):
            return "closed in some shards only: close it again"
        if self.frozen is None and not self.is_closed and not self.available and self.away:
            return f"open, but all free units are in transit: {self.away}"
        return super(ShardedState, self).condition  # a class with slots is another than `__class__`


def note_of(state: PoolState, kind: Literal["sent", "away", "received"], other: int) -> Transfer:
    """Return a shard's note of its transfers with another one; zeros if it has none."""
    found = (one for one in state.transfers if (one.kind, one.other) == (kind, other))
    return next(found, Transfer(kind, other, 0, 0))


def units_away(senders: Sequence[PoolState], receivers: Sequence[PoolState]) -> list[int]:
    """Return for each shard the units on the way from it, even if it does not know yet that they have arrived.

    Both arguments are all the shards, in their order; `receivers` may have been read later.
    """
    got = [{one.other: one.units for one in state.transfers if one.kind == "received"} for state in receivers]
    found = []
    for number, state in enumerate(senders):
        sent = {one.other: one.units for one in state.transfers if one.kind == "sent"}
        away = [one for one in state.transfers if one.kind == "away" and one.other < len(receivers)]
        lacking = (min(one.units, sent.get(one.other, 0) - got[one.other].get(number, 0)) for one in away)
        found.append(sum(max(0, units) for units in lacking))
    return found


@dataclass(frozen=True, slots=True)
class ShardFound:
    """One shard's numbers, read in one step, after some expired holds were returned."""

    shard: Shard
    available: int
    reserved: int
    away: tuple[Transfer, ...]
    """Transfers that may not have arrived."""
    is_more_due: bool
    """Whether more expired holds remain to be processed."""
    increases: int = field(compare=False)
    """How often the free units have grown: if two reads have the same number, no unit came in between."""
    sequence: int
    """Sequence number of its last change."""
    free_in_ms: int | None = field(default=None, compare=False)
    """As in `SoldOut`."""


@dataclass(frozen=True, slots=True)
class Received:
    """The units of a transfer are in the target's stock."""

    number: int
    units: int
    """Units that this call added: 0 if they were already in; more than were sent, if earlier ones had been lost."""
    later_epoch: int = 0
    """The later epoch in which the source was thawed, if the transfer is from an earlier one: it never arrives."""

    @property
    def replay(self) -> bool:
        """Return whether nothing was added."""
        return self.units == 0
