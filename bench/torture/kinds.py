"""The kinds of lock that can be tested, and the guarantees that an observer can check for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.errors import InvalidInput

PERMITS: Final = 3
PATIENCE: Final = 5.0
"""Seconds beyond a lease within which there must be an entry, on a machine that is busy starting processes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind's guarantees, as the checker needs them."""

    name: str
    is_fenced: bool = True
    """Whether a resource can refuse old holders by token. It cannot for a semaphore or a quorum lock."""
    permits: int = 1
    """Maximum number of concurrent holders, readers not counted."""
    servers: int = 1
    ttl: float = 0.5
    """Seconds that a lease lasts."""
    patience: float = PATIENCE


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("lock"),
        Kind("reentrant"),
        # Its own bound: stopped or dead waiters ahead cost up to 45 s, however many they are (segmented.locks.fair).
        Kind("fair", patience=45.0 + PATIENCE),
        Kind("read_write"),
        Kind("semaphore", is_fenced=False, permits=PERMITS),
        Kind("multi"),
        Kind("quorum", is_fenced=False, servers=3, ttl=1.0),
    )
}


def find_kind(name: str) -> Kind:
    """Return a kind. Raises InvalidInput that lists the known kinds."""
    if name not in KINDS:
        message = f"--kind {name!r} cannot be tortured; known are: {', '.join(KINDS)}"
        raise InvalidInput(message)
    return KINDS[name]
