"""All keys and channels of deduplication are built here, with the patterns that find them.

All keys of one partition of a namespace share one hash tag, so that each operation stays in one hash slot. An entry of
the claims names the key of a record: it is "key", or "key message".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from segmented.keys import KEPT_MAX, encoded

ONCE_PARTITIONS: Final = 32
"""Number of hash slots over which a namespace's deduplication records are spread."""


class OnceKeys(NamedTuple):  # every publication creates one, and a frozen dataclass takes four times as long
    """Keys of one deduplication record, and of its partition."""

    record: str
    """Hash with PX: seat, run and outcome of the key."""
    messages: str
    """Prefix: `<messages>:<message>` is a hash with PX: the state of one message."""
    claims: str
    """Sorted set of the partition: key, or "key message" -> server milliseconds at which its hold expires."""
    freed: str
    """Channel: one message when the key may be free, or has an outcome."""
    runs: str
    """Sorted set with PX: message -> server milliseconds at which its lease ends, where several may run at once."""
    line: str
    """Sorted set with PX: message -> server microseconds at which it first had to wait for one of those runs."""
    member: str
    """The key as written in the claims."""

    def listed(self) -> list[str]:
        """Return KEYS of every record script."""
        return list(self[:6])


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
        runs=f"{tag}:runs:{member}",
        line=f"{tag}:line:{member}",
        member=member,
    )


def once_member(key: str) -> str:
    """Return the key with encoded spaces, which end it in an entry, and colons, which end it in a key's name."""
    return key.replace("%", "%25").replace(":", "%3A").replace(" ", "%20")


def once_claimed(entry: str) -> tuple[str, str]:
    """Return the key of an entry of the claims, and the message, or ""."""
    member, _, message = entry.partition(" ")
    return member.replace("%20", " ").replace("%3A", ":").replace("%25", "%"), message


def once_pattern(key: str = "") -> str:
    """Return the key pattern for the claims of every namespace; with a `key`, for its record in every namespace."""
    if not key:
        return once_claims("\n", 0).replace("{\n:0}", "{*}")
    before, after = once_keys("\n", key).record.split("\n")
    for wild in "\\*?[]":
        after = after.replace(wild, f"\\{wild}")
    return f"{before}*{after}"


def once_namespace(found: str) -> str | None:
    """Return the namespace of one of our keys, or None for any other key."""
    prefix = once_claims("", 0).partition("{")[0]
    tag, closed, _ = found.removeprefix(prefix + "{").partition("}")
    encoded, colon, _ = tag.rpartition(":")
    if not found.startswith(prefix + "{") or not closed or not colon:
        return None
    return encoded.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
