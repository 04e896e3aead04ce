"""The kinds of lock that can be tortured, and what each of them promises to those who watch from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.errors import InvalidInput

PERMITS: Final = 3
PATIENCE: Final = 5.0
"""Seconds beyond a lease within which somebody must get in, on a machine that is busy starting processes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is promised, as the checker needs it."""

    name: str
    is_fenced: bool = True
    """Do its tokens tell a resource whom to refuse? A semaphore's and a quorum's holders cannot be told apart so."""
    permits: int = 1
    """Holders whose leases may live at once; readers are not counted."""
    servers: int = 1
    ttl: float = 0.5
    """Seconds that a lease lives, unless told otherwise."""
    patience: float = PATIENCE


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("lock"),
        Kind("reentrant"),
        # Its own bound: any number of stopped or dead waiters ahead cost 45 s at most (segmented.locks.fair).
        Kind("fair", patience=45.0 + PATIENCE),
        Kind("read_write"),
        Kind("semaphore", is_fenced=False, permits=PERMITS),
        Kind("multi"),
        Kind("quorum", is_fenced=False, servers=3, ttl=1.0),
    )
}


def find_kind(name: str) -> Kind:
    """Return a kind. Raises InvalidInput that names those that exist."""
    if name not in KINDS:
        message = f"--kind {name!r} cannot be tortured; there is: {', '.join(KINDS)}"
        raise InvalidInput(message)
    return KINDS[name]
