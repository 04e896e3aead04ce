"""Every key and channel of deduplication, built here and nowhere else.

All keys of one partition of a namespace share one hash tag, so that each operation stays in one hash slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from segmented.keys import KEPT_MAX, encoded
from segmented.once_members import once_member

ONCE_PARTITIONS: Final = 32
"""Hash slots that the deduplication records of a namespace are spread over."""


@dataclass(frozen=True, slots=True)
class OnceKeys:
    """Keys of one deduplication record, and of its partition."""

    record: str
    """Hash with PX: seat, run and outcome of the key."""
    messages: str
    """Prefix: `<messages>:<message>` is a hash with PX: what is known of one message."""
    claims: str
    """Sorted set of the partition: key, or "key message" -> server milliseconds at which what holds it lapses."""
    freed: str
    """Channel: one message when the key may be free, or has an outcome."""
    member: str
    """The key as the claims name it."""

    def listed(self) -> list[str]:
        """Return KEYS of every script about a record."""
        return [self.record, self.messages, self.claims, self.freed]


def once_partition(key: str) -> int:
    """Return the partition of a key, from 0: the same in every process and version."""
    return crc32(key.encode()) % ONCE_PARTITIONS


def once_claims(namespace: str, partition: int) -> str:
    """Build the key of the claims of one partition."""
    return f"seg:once:{{{encoded(namespace)}:{partition}}}:claims"


@lru_cache(KEPT_MAX)
def once_keys(namespace: str, key: str) -> OnceKeys:
    """Build the keys of the record of `key`."""
    tag = f"seg:once:{{{encoded(namespace)}:{once_partition(key)}}}"
    member = once_member(key)
    return OnceKeys(
        record=f"{tag}:key:{member}",
        messages=f"{tag}:message:{member}",
        claims=f"{tag}:claims",
        freed=f"{tag}:freed:{member}",
        member=member,
    )
