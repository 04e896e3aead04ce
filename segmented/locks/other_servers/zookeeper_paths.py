"""Paths of locks and their contenders: `<root>/<name, percent-encoded>/<holder id>-<sequence>`.

ZooKeeper appends the sequence: ten digits, counted by the parent. The counter is a signed 32-bit number that becomes
negative after 2,147,483,647; `in_order` handles that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Final
from urllib.parse import quote

from segmented.errors import InvalidInput

DOTS: Final = {".": "%2E", "..": "%2E%2E"}
"""Segments with a special meaning, which a path must not contain."""
WRAP: Final = 2**32


@dataclass(frozen=True, slots=True)
class Contender:
    """One place in a lock's queue. The first in the queue holds the lock."""

    holder_id: str
    sequence: int
    path: str


def checked_root(root: object) -> str:
    """Return the root without a trailing slash; raises InvalidInput if it is not a path for our locks."""
    segments = root.strip("/").split("/") if isinstance(root, str) and root.startswith("/") else [""]
    if {"", *DOTS} & set(segments) or not "".join(segments).isprintable():
        raise InvalidInput(f"root of {root!r} is not a path for locks: give one like '/segmented/locks'")
    if segments[0] == "zookeeper":
        raise InvalidInput(f"root of {root!r} belongs to ZooKeeper itself: give one like '/segmented/locks'")
    return "/" + "/".join(segments)


def lock_path(root: str, name: str) -> str:
    """Return the parent of a lock's contenders; different names have different parents."""
    encoded = quote(name, safe="")
    return f"{root}/{DOTS.get(encoded, encoded)}"


def contender_prefix(parent: str, holder_id: str) -> str:
    """Return the path to which ZooKeeper appends the sequence."""
    return f"{parent}/{holder_id}-"


def contender(parent: str, node: str) -> Contender | None:
    """Return the contender of a child node; None for a node that is not ours."""
    holder_id, dash, sequence = node.partition("-")
    digits = sequence.removeprefix("-")
    if not dash or not holder_id or not (digits.isascii() and digits.isdigit()):
        return None
    return Contender(holder_id, int(sequence), f"{parent}/{node}")


def in_order(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Sort by arrival, by serial number arithmetic (RFC 1982), so that nobody jumps the queue when the counter wraps.

    Correct as long as fewer than 2^31 arrivals lie between the first and the last.
    """
    return tuple(sorted(contenders, key=cmp_to_key(_difference)))


def _difference(one: Contender, other: Contender) -> int:
    return (one.sequence - other.sequence + WRAP // 2) % WRAP - WRAP // 2
