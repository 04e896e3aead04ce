"""Where shards lie: each on the master of its turn, so that all have equally many; and which is an order's home."""

from __future__ import annotations

from itertools import chain, count, islice, product
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final
from zlib import crc32

from redis.crc import key_slot

from segmented.errors import StoreRefused
from segmented.keys import pool_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.protocol import SlotRanges

SALTS_MAX: Final = 20_000
"""Salts tried for one shard: a master with a hundredth of the slots is hit after about 100."""


def salts(sku: str, shard_count: int, masters: Sequence[SlotRanges]) -> tuple[str, ...]:
    """Choose a salt for each shard, so that its keys lie on the master whose turn it is.

    The turn begins at a master that depends on the sku, so that what is left over of many pools is spread as well.
    Without masters (a single server) any salt will do. Raises StoreRefused for a master with next to no slots.
    """
    if not masters:
        return ("a",) * shard_count
    first = crc32(sku.encode())
    ordered = sorted(masters)
    return tuple(_salt(sku, number, ordered[(first + number) % len(ordered)]) for number in range(shard_count))


def _salt(sku: str, number: int, ranges: SlotRanges) -> str:
    for salt in islice(_letters(), SALTS_MAX):
        slot = key_slot(pool_tag(sku, f"{number}{salt}").encode())
        if any(low <= slot <= high for low, high in ranges):
            return salt
    message = f"no place was found for shard {number} of {sku!r} on the master with the slots {list(ranges)[:4]}"
    raise StoreRefused(message)


def _letters() -> Iterator[str]:
    """Name all texts of small letters, the short ones first."""
    return chain.from_iterable(map("".join, product(ascii_lowercase, repeat=length)) for length in count(1))


def home_of(name: str, shard_count: int) -> int:
    """Return the number of the shard where an order, a customer or a change is at home: the same in every process."""
    return crc32(name.encode()) % shard_count
