"""Every key and channel of deduplication, built here and nowhere else, and the patterns for finding them again.

All keys of one partition of a namespace share one hash tag, so that each operation stays in one hash slot. An entry of
the claims names the key of a record: it is "key", or "key message".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from segmented.keys import KEPT_MAX, encoded

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


def once_member(key: str) -> str:
    """Return the key without a space, which ends it in an entry, and without a colon, which ends it in a key's name."""
    return key.replace("%", "%25").replace(":", "%3A").replace(" ", "%20")


def once_claimed(entry: str) -> tuple[str, str]:
    """Return the key that an entry of the claims is about, and the message, or ""."""
    member, _, message = entry.partition(" ")
    return member.replace("%20", " ").replace("%3A", ":").replace("%25", "%"), message


def once_pattern(key: str = "") -> str:
    """Return a server's pattern for the claims of every namespace; with a `key`, for its record in every namespace."""
    if not key:
        return once_claims("\n", 0).replace("{\n:0}", "{*}")
    before, after = once_keys("\n", key).record.split("\n")
    for wild in "\\*?[]":
        after = after.replace(wild, f"\\{wild}")
    return f"{before}*{after}"


def once_namespace(found: str) -> str | None:
    """Return the namespace of a key of ours; None for any other key."""
    prefix = once_claims("", 0).partition("{")[0]
    tag, closed, _ = found.removeprefix(prefix + "{").partition("}")
    encoded, colon, _ = tag.rpartition(":")
    if not found.startswith(prefix + "{") or not closed or not colon:
        return None
    return encoded.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
