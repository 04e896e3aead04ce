"""For operators: outbox counts, an order's state, and the dead-letter sets with their replay.

Plans, for `run_sync` and `run_async`. For a sku that is sold in shards they visit each shard.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Final, TypeVar

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolMissing, ShardVanished
from segmented.models import SKU_BYTES_MAX, Settled, Shard, checked_id, checked_pool_name, shortened
from segmented.models.shards import SHARD_MARK
from segmented.plans import Plan, perform
from segmented.stock.outbox import dead_plan
from segmented.stock.sharded.opening import directory_plan, is_in_shards_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.models.submitted import DeadOrder, KeptMessage, OutboxState, Replayed, Submitted

ItemT = TypeVar("ItemT")
QUEUE: Final = "segmented"
"""The workers' default queue."""


@dataclass(frozen=True, slots=True)
class Place:
    """A pool, or one shard of a pool."""

    sku: str
    shard: int | None = None

    @classmethod
    def of(cls, name: str) -> Place:
        """Parse the name that operations use."""
        return cls(name.sku, name.number) if isinstance(name, Shard) else cls(name)


@dataclass(frozen=True, slots=True)
class PlacedOutbox:
    """The contents of an outbox."""

    place: Place
    state: OutboxState | None
    """None if the pool is not open: orders were submitted to it, so its keys were lost or it was never opened."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order's known state."""

    place: Place
    found: Submitted


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An order in the dead-letter set, and its current state."""

    place: Place
    dead: DeadOrder
    found: Submitted

    @property
    def age_ms(self) -> int:
        """How long it has been there, by the server's clock."""
        return max(0, self.found.read_at_ms - self.dead.at_ms)

    @property
    def units_on_hold(self) -> int:
        """Units kept from other buyers until the order's hold expires."""
        record = self.found.record
        return record.quantity if record is not None and record.state == "reserved" else 0


@dataclass(frozen=True, slots=True)
class ReplayedOrder:
    """The result of replaying one order."""

    order_id: str
    place: Place
    answer: Replayed | Settled | None
    """Published again, or decided meanwhile; None: it is not in the set, or its record is gone."""


# --- places ---


def places_plan(sku: str) -> Plan[tuple[str, ...]]:
    """Return a sku's pool, or each shard of it, named as in operations. Raises PoolMissing and InvalidInput."""
    sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
    if (yield from is_in_shards_plan(sku)):
        return (yield from directory_plan(sku)).shards
    yield from perform(op.ReadOutbox(sku))  # this fails when there is no pool
    return (sku,)


def noted_plan() -> Plan[tuple[str, ...]]:
    """Return the pools and shards to which orders were submitted."""
    names = filter(_is_pools, (yield from perform(op.ListOutboxes())))
    places = sorted((_named(name) for name in names), key=lambda name: (Place.of(name).sku, Place.of(name).shard or 0))
    return tuple(places)


def _is_pools(name: str) -> bool:
    """Return whether a pool can have this name; another program may have written into the list."""
    try:
        checked_pool_name(name)
    except InvalidInput:
        return False
    return True


def _named(name: str) -> str:
    sku, mark, place = name.partition(SHARD_MARK)
    return Shard(sku, int(place.rstrip(ascii_lowercase)), place.lstrip(digits)) if mark else name


# --- reading ---


def outboxes_plan(skus: Sequence[str] = ()) -> Plan[list[PlacedOutbox]]:
    """Count what waits for these skus, or for all with submitted orders. Raises PoolMissing for a named sku."""
    if skus:
        names: list[str] = []
        for sku in dict.fromkeys(skus):
            names += yield from places_plan(sku)
    else:
        names = list((yield from noted_plan()))
    found = []
    for name in names:
        state = None
        with suppress(PoolMissing, ShardVanished):
            state = yield from perform(op.ReadOutbox(name))
        found.append(PlacedOutbox(Place.of(name), state))
    return found


def order_plan(sku: str, order_id: str) -> Plan[list[PlacedOrder]]:
    """Return an order's known state: none or one; in shards one for each that knows it. Raises PoolMissing."""
    order_id = checked_id(order_id, "order id")
    found = []
    for name in (yield from places_plan(sku)):
        (one,) = yield from perform(op.ReadSubmitted(name, (order_id,)))
        if one.state != "unknown":
            found.append(PlacedOrder(Place.of(name), one))
    return found


def dead_letters_plan(sku: str | None = None) -> Plan[list[DeadLetter]]:
    """Read the dead-letter set of a sku, or of all with submitted orders; the oldest first in each pool."""
    names = (yield from noted_plan()) if sku is None else (yield from places_plan(sku))
    letters: list[DeadLetter] = []
    for name in names:
        dead = yield from dead_plan(name)
        for page in pages(dead):
            known = yield from perform(op.ReadSubmitted(name, tuple(one.order_id for one in page)))
            both = zip(page, known, strict=True)
            letters += [DeadLetter(Place.of(name), one, found) for one, found in both if found.dead_at_ms is not None]
    return letters


# --- replay ---


def replay_plan(sku: str, order_ids: Sequence[str]) -> Plan[list[ReplayedOrder]]:
    """Take up to 1,000 orders out of a sku's dead-letter set, so that the next sweep publishes them again.

    Returns one answer for each order, in their order; in shards one for each shard whose set contained it. Safe to
    repeat: the second time the orders are not in the set. Raises PoolMissing, and InvalidInput for invalid ids; nothing
    is changed then.
    """
    ids = tuple(dict.fromkeys(checked_id(order_id, "order id") for order_id in order_ids))
    if not 1 <= len(ids) <= op.BATCH_MAX:
        raise InvalidInput(f"a replay has 1 to {op.BATCH_MAX:,} orders, not {len(ids):,}")
    answers: dict[str, list[ReplayedOrder]] = {order_id: [] for order_id in ids}
    for name in (yield from places_plan(sku)):
        for order_id, answer in zip(ids, (yield from perform(op.ReplayDead(name, ids))), strict=True):
            if answer is not None:
                answers[order_id].append(ReplayedOrder(order_id, Place.of(name), answer))
    return [one for order_id, found in answers.items() for one in found or [ReplayedOrder(order_id, Place(sku), None)]]


def pages(items: Sequence[ItemT]) -> Iterable[Sequence[ItemT]]:
    """Cut the items into pages that fit one operation."""
    return (items[first : first + op.BATCH_MAX] for first in range(0, len(items), op.BATCH_MAX))


# --- messages ---


def message_of(messages: Sequence[KeptMessage], beginning: str, queue: str) -> KeptMessage:
    """Return the message whose digest starts with `beginning`. Raises InvalidInput if none or several match."""
    found = [one for one in messages if beginning and one.digest.startswith(beginning)]
    if len(found) != 1:
        several = (
            f"the digests of {len(found):,} messages of queue {queue!r} begin with {shortened(beginning)}: give more"
        )
        none = f"no kept message of queue {queue!r} has a digest that begins with {shortened(beginning)}"
        raise InvalidInput(several if found else none)
    return found[0]
