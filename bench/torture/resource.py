"""The resource that the locks protect: it checks fences, and writes every access down. Pure: it is told the time.

Its fence is a `FenceGuard`, which refuses a token that is lower than the highest it has accepted for the name. So a
holder that overslept can enter and write for as long as no successor has come, and is refused from then on. A holder
without a token (`QuorumLock`) is never refused, nor is one whose tokens order nothing (`Semaphore`): the log shows what
that means.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from bench.torture.events import Died, Entered, Left, Missed, Wrote
from segmented.errors import StaleToken
from segmented.locks.checks import FenceGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.torture.events import Event


@dataclass(frozen=True, slots=True)
class Asked:
    """What a holder says of itself when it asks to be let in."""

    name: str
    token: int | None
    holder: str
    mode: str
    held_since: float
    trusted_until: float
    waited: float


class Resource:
    """Something that only one holder a name may change at a time."""

    def __init__(self, note: Callable[[Event], None], *, is_fenced: bool) -> None:
        """Tell `note` of everything; refuse old tokens if `is_fenced`."""
        self._note = note
        self._is_fenced = is_fenced
        self._fence = FenceGuard()
        self._inside: dict[int, tuple[Asked, int]] = {}
        self._ids = count(1)

    def enter(self, asked: Asked, *, process: int, now: float) -> int | None:
        """Return the number of the access, or None when it is refused."""
        is_accepted = self._is_let_through(asked)
        access = next(self._ids)
        if is_accepted:
            self._inside[access] = asked, process
        self._note(
            Entered(
                now,
                access,
                asked.name,
                asked.token,
                asked.holder,
                asked.mode,
                process,
                asked.held_since,
                asked.trusted_until,
                asked.waited,
                is_accepted,
            )
        )
        return access if is_accepted else None

    def write(self, access: int, *, trusted_until: float, now: float) -> bool:
        """Is the write accepted?"""
        is_accepted = self._is_let_through(self._inside[access][0])
        self._note(Wrote(now, access, trusted_until, is_accepted))
        return is_accepted

    def leave(self, access: int, *, trusted_until: float, now: float) -> bool:
        """End the access. Was it still the newest?"""
        is_accepted = self._is_let_through(self._inside.pop(access)[0])
        self._note(Left(now, access, trusted_until, is_accepted))
        return is_accepted

    def die(self, access: int, *, now: float) -> None:
        """End the access of a holder whose connection is gone."""
        del self._inside[access]
        self._note(Died(now, access))

    def miss(self, name: str, reason: str, *, waited: float, now: float) -> None:
        """Note that somebody did not get the lock."""
        self._note(Missed(now, name, reason, waited))

    def processes_inside(self) -> set[int]:
        """Return the processes whose holders are inside now."""
        return {process for _, process in self._inside.values()}

    def _is_let_through(self, asked: Asked) -> bool:
        if not self._is_fenced or asked.token is None:
            return True
        try:
            self._fence.check(asked.name, token=asked.token)
        except StaleToken:
            return False
        return True
