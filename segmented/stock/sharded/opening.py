"""Open a pool in shards, and find it again by its directory, which has copies in several hash slots.

The shards are assigned to the masters in turn, so that all have equally many; an order's id determines its home.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count, islice, product
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final, TypeVar
from zlib import crc32

from redis.crc import key_slot

from segmented import protocol as op
from segmented.errors import (
    ChangeGated,
    PoolArchived,
    PoolInShards,
    PoolMissing,
    SegmentedError,
    ShardVanished,
    StoreRefused,
    StoreUnavailable,
)
from segmented.keys import pool_tag
from segmented.models import AlreadyOpen, Opened, PoolState, ShardDirectory, ShardedState
from segmented.models.pools import MEMORY, parse_profile
from segmented.plans import Batch, Now, Plan, Within, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from segmented.protocol import Operation, SlotRanges

    AnswerT = TypeVar("AnswerT")

COPIES: Final = 5
"""With three masters, one has all five copies of one pool in 81: no client can start to use that pool while it is down.
"""
READ_SECONDS: Final = 2.0
"""Seconds to wait for one copy before the next is tried."""
ALL_SECONDS: Final = 10.0
"""Seconds that a request to all shards may take."""
SALTS_MAX: Final = 20_000
"""Salts tried for one shard: a master with a hundredth of the slots is hit after about 100."""


def directory_plan(sku: str) -> Plan[ShardDirectory]:
    """Find the directory of an open pool. Raises PoolMissing, and PoolArchived for an archived one."""
    found = yield from first_copy_plan(sku, lambda found, _: found is not None and (found.is_open or found.is_archived))
    if found is None:
        raise PoolMissing(sku)
    if found.is_archived:
        raise PoolArchived(sku, found.epoch, is_removed=True)
    return found


def first_copy_plan(sku: str, decides: Callable[[ShardDirectory | None, bool], bool]) -> Plan[ShardDirectory | None]:
    """Read one copy after the other, until one decides; None when none does.

    `decides` gets a copy, and whether one before it did not answer. Raises StoreUnavailable when none decides and one
    did not answer.
    """
    failure: StoreUnavailable | None = None
    for copy in range(COPIES):
        soon = (yield from perform(Now())) + READ_SECONDS
        try:
            found = yield from perform(Within(op.ReadDirectory(sku, copy), soon))
        except StoreUnavailable as error:
            failure = failure or error
            continue
        if decides(found, failure is not None):
            return found
    if failure is not None:
        raise failure
    return None


def shards_plan(sku: str) -> Plan[ShardDirectory | None]:
    """Return the directory of shards that was written for the sku, or None for a pool in one piece.

    The first copy decides, because a pool that is not in shards lies in its hash slot. The others are read only when it
    does not answer.
    """
    return (yield from first_copy_plan(sku, lambda found, has_failed: found is not None or not has_failed))


def is_in_shards_plan(sku: str) -> Plan[bool]:
    """Return whether a directory of shards was written for the sku."""
    return (yield from shards_plan(sku)) is not None


def opened_ungated_plan(asked: Sequence[op.OpenPool]) -> Plan[list[Opened | AlreadyOpen]]:
    """Open shards without an order database, the first one first.

    Raises ChangeGated if the opening was begun with a database.
    """
    first = yield from perform(asked[0])
    if first.state.gated:
        raise ChangeGated(asked[0].sku, "open")
    return [first, *(yield from all_plan(asked[1:]))]


def open_plan(
    wanted: op.OpenPool,
    shard_count: int,
    opened_plan: Callable[[Sequence[op.OpenPool]], Plan[list[Opened | AlreadyOpen]]] = opened_ungated_plan,
) -> Plan[Opened | AlreadyOpen]:
    """Open all shards: write the directory, open each shard, mark the directory as open, copy it.

    Nothing is sold before the mark, so an interrupted opening is continued with the numbers with which it began; after
    it no shard is ever opened again. Raises PoolInShards when the sku is already sold in one hash slot, and
    ShardVanished when only a copy of the directory remains.
    """
    sku = wanted.sku
    copies = yield from all_plan(op.ReadDirectory(sku, copy) for copy in range(COPIES))
    for copy, one in enumerate(copies):
        if one is not None and one.is_archived:
            if one.epoch >= wanted.epoch:
                raise PoolArchived(sku, one.epoch, is_removed=True)
            copies[copy] = None
    found = copies[0]
    if found is None and any(copies):
        found = yield from perform(op.ReadDirectory(sku, 0))  # another process may have written it meanwhile
        if found is None:
            raise ShardVanished(sku)
    if found is None:
        found = yield from _written_plan(wanted, shard_count)
    is_new = not found.is_open
    if is_new:
        shares = zip(found.shards, found.shares(found.stock), found.shares(found.segment_count), strict=True)
        opened = yield from opened_plan(
            [
                op.OpenPool(
                    shard,
                    stock,
                    segments,
                    gated=wanted.gated,
                    epoch=found.epoch,
                    limit_per_customer=found.limit_per_customer,
                    profile=parse_profile(found.profile),
                    assignment=wanted.assignment,
                )
                for shard, stock, segments in shares
            ]
        )
        if sum(answer.state.opened for answer in opened) != found.stock:  # of another directory, which is gone
            raise ShardVanished(sku)
        found = (yield from perform(op.WriteDirectory(replace(found, is_open=True), 0))) or found
    yield from all_plan(op.WriteDirectory(found, copy) for copy in range(1, COPIES) if copies[copy] is None)
    yield from all_plan(op.NotePool(shard) for shard in found.shards)
    state = yield from state_plan(found)
    if state.gated and not wanted.gated:
        raise ChangeGated(sku, "open")
    return Opened(state) if is_new else AlreadyOpen(state)


def _written_plan(wanted: op.OpenPool, shard_count: int) -> Plan[ShardDirectory]:
    masters = yield from perform(op.ListMasters())
    mine = ShardDirectory(
        wanted.sku,
        salts(wanted.sku, shard_count, masters),
        wanted.stock,
        wanted.segment_count,
        wanted.epoch,
        wanted.limit_per_customer,
        is_open=False,
        profile=str(wanted.profile or MEMORY),
    )
    if wanted.profile is not None and wanted.profile.waits:
        yield from all_plan(op.CheckProfile(shard, wanted.profile) for shard in mine.shards)
    found = yield from perform(op.WriteDirectory(mine, 0))
    if found is None:
        raise PoolInShards(wanted.sku, is_in_shards=False)
    return found


def state_plan(directory: ShardDirectory) -> Plan[ShardedState]:
    """Read every shard and add up. Only each shard is read atomically."""
    states = yield from all_plan(op.ReadPool(shard) for shard in directory.shards)
    return summed(directory, states)


def summed(directory: ShardDirectory, states: list[PoolState]) -> ShardedState:
    """Add up the shards. Units on the way between two shards are in `stocked`, and in no other number."""
    first = states[0]
    return ShardedState(
        sku=directory.sku,
        epoch=first.epoch,
        segment_count=sum(state.segment_count for state in states),
        gated=first.gated,
        sequence=sum(state.sequence for state in states),
        opened=sum(state.opened for state in states),
        available=sum(state.available for state in states),
        reserved=sum(state.reserved for state in states),
        confirmed=sum(state.confirmed for state in states),
        order_count=sum(state.order_count for state in states),
        stock=tuple(units for state in states for units in state.stock),
        restocked=sum(state.restocked for state in states),
        withdrawn=sum(state.withdrawn for state in states),
        limit_per_customer=first.limit_per_customer,
        is_closed=all(state.is_closed for state in states),
        profile=directory.profile,
        queue=first.queue,
        step=first.step,
        unreadable=tuple(f"{state.sku!r}: {name}" for state in states for name in state.unreadable),
        shards=tuple(states),
    )


def all_plan(operations: Iterable[Operation[AnswerT]]) -> Plan[list[AnswerT]]:
    """Perform operations on several shards concurrently; raises the first failure after all have been tried."""
    deadline = (yield from perform(Now())) + ALL_SECONDS
    answers = yield from perform(Batch(tuple(operations), deadline))
    for answer in answers:
        if isinstance(answer, SegmentedError):
            raise answer
    return answers  # type: ignore[return-value]  # the failures were raised


def salts(sku: str, shard_count: int, masters: Sequence[SlotRanges]) -> tuple[str, ...]:
    """Choose a salt for each shard, so that its keys lie on the master whose turn it is.

    The first master depends on the sku, so that the remainders of many pools are spread as well. Without masters (a
    single server) any salt will do. Raises StoreRefused for a master with almost no slots.
    """
    if not masters:
        return ("a",) * shard_count
    first = crc32(sku.encode())
    ordered = sorted(masters)
    return tuple(_salt(sku, number, ordered[(first + number) % len(ordered)]) for number in range(shard_count))


def _salt(sku: str, number: int, ranges: SlotRanges) -> str:
    for salt in islice(letters(), SALTS_MAX):
        slot = key_slot(pool_tag(sku, f"{number}{salt}").encode())
        if any(low <= slot <= high for low, high in ranges):
            return salt
    message = f"no place was found for shard {number} of {sku!r} on the master with the slots {list(ranges)[:4]}"
    raise StoreRefused(message)


def letters() -> Iterator[str]:
    """Yield all texts of lower-case letters, the short ones first."""
    return chain.from_iterable(map("".join, product(ascii_lowercase, repeat=length)) for length in count(1))


def home_of(name: str, shard_count: int) -> int:
    """Return the number of the home shard of an order, a customer or a change: the same in every process."""
    return crc32(name.encode()) % shard_count
